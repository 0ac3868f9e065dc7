//! The commands of the binary, one file each.

pub mod mask;
pub mod run;
