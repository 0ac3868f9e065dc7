//! FLOOR 4: the places a run can run in.

pub mod ci;
