//! FLOOR 5: the verbs, in the order a ticket meets them.

pub mod report;
