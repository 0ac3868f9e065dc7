//! Sizes of machines at Fly Machines.

use std::fmt;

use super::mapping::Mapping;

/// CPU counts of shared machines. See docs/behaviour.md#machine-sizes.
const CPUS: [u32; 5] = [1, 2, 4, 6, 8];

/// Minimum and maximum memory per CPU, in MB.
const MIN_MEMORY_PER_CPU_MB: u32 = 256;
const MAX_MEMORY_PER_CPU_MB: u32 = 2_048;

/// Step of memory sizes, in MB.
const MEMORY_STEP_MB: u32 = 256;

/// Size of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineSize {
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory, in MB.
    pub memory_mb: u32,
}

/// Error: the size exceeds the largest machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "Fly Machines has no machine with {0}. Shared machines have 1, 2, 4, 6 or 8 CPUs with 256 to 2048 MB for each, 16384 MB at most."
)]
pub struct MachineSizeTooLarge(MachineSize);

impl MachineSize {
    /// Returns the size that a mapping requests.
    pub fn from_mapping(mapping: &Mapping) -> Self {
        Self {
            cpus: mapping.machine_cpus,
            memory_mb: mapping.machine_memory_mb,
        }
    }

    /// Returns the smallest available size with at least this many CPUs and this much memory.
    ///
    /// # Errors
    /// The size exceeds the largest machine.
    pub fn smallest_available(self) -> Result<Self, MachineSizeTooLarge> {
        let enough = |cpus: &u32| {
            *cpus >= self.cpus && cpus.saturating_mul(MAX_MEMORY_PER_CPU_MB) >= self.memory_mb
        };
        let cpus = CPUS
            .into_iter()
            .find(enough)
            .ok_or(MachineSizeTooLarge(self))?;
        let memory_mb = round_up_memory(self.memory_mb).max(cpus * MIN_MEMORY_PER_CPU_MB);
        Ok(Self { cpus, memory_mb })
    }

    /// Returns a warning for operators if runs do not get exactly this size.
    pub fn warning(self) -> Option<String> {
        match self.smallest_available() {
            Ok(available) if available == self => None,
            Ok(available) => Some(format!(
                "Fly Machines has no machine with {self}: runs get {available}."
            )),
            Err(too_large) => Some(too_large.to_string()),
        }
    }
}

impl fmt::Display for MachineSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cpus == 1 { "" } else { "s" };
        write!(f, "{} CPU{plural} and {} MB", self.cpus, self.memory_mb)
    }
}

/// Rounds an amount of memory up to the next step, in MB.
pub(crate) fn round_up_memory(megabytes: u32) -> u32 {
    megabytes
        .div_ceil(MEMORY_STEP_MB)
        .saturating_mul(MEMORY_STEP_MB)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(cpus: u32, memory_mb: u32) -> MachineSize {
        MachineSize { cpus, memory_mb }
    }

    #[test]
    fn rounds_up_to_an_available_size() {
        let rows = [
            ((1, 256), Some((1, 256))),
            ((1, 257), Some((1, 512))),
            ((1, 2_048), Some((1, 2_048))),
            ((1, 2_049), Some((2, 2_304))),
            ((1, 4_096), Some((2, 4_096))),
            ((2, 4_096), Some((2, 4_096))),
            ((3, 256), Some((4, 1_024))),
            ((3, 4_096), Some((4, 4_096))),
            ((5, 10_000), Some((6, 10_240))),
            ((7, 12_288), Some((8, 12_288))),
            ((8, 256), Some((8, 2_048))),
            ((1, 16_384), Some((8, 16_384))),
            ((8, 16_385), None),
            ((9, 256), None),
            ((16, 4_096), None),
            ((2, 100_000), None),
            ((u32::MAX, u32::MAX), None),
        ];
        for ((cpus, memory_mb), expected) in rows {
            let requested = size(cpus, memory_mb);
            let expected = expected.map(|(cpus, memory_mb)| size(cpus, memory_mb));
            assert_eq!(requested.smallest_available().ok(), expected, "{requested}");
            assert_eq!(
                requested.warning().is_none(),
                expected == Some(requested),
                "{requested}"
            );
            if let Some(available) = expected {
                assert_eq!(
                    available.smallest_available(),
                    Ok(available),
                    "an available size is not rounded"
                );
            }
        }
    }

    #[test]
    fn warnings_name_the_available_sizes() {
        assert_eq!(
            size(1, 4_096).warning().unwrap(),
            "Fly Machines has no machine with 1 CPU and 4096 MB: runs get 2 CPUs and 4096 MB."
        );
        let refusal = size(16, 4_096).warning().unwrap();
        assert!(refusal.contains("16 CPUs and 4096 MB"), "{refusal}");
        assert!(refusal.contains("1, 2, 4, 6 or 8 CPUs"), "{refusal}");
    }
}
