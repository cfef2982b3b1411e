//! The machine that a record was made on, in one line.

use std::fs;

/// Such as `x86_64, 2 × Model name, 8 GiB, Linux 6.18.0`.
pub(super) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let model = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let kibibytes = field(&read("/proc/meminfo"), "MemTotal");
    let kibibytes = kibibytes.and_then(|text| text.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease");
    // Rounded: what the kernel keeps for itself is not of interest.
    let gibibytes = kibibytes.div_ceil(1 << 20);
    format!("{}, {cores} × {model}, {gibibytes} GiB, Linux {}", std::env::consts::ARCH, kernel.trim())
}

fn field(text: &str, name: &str) -> Option<String> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cores_memory_and_a_kernel() {
        let line = describe();
        assert!(line.contains(" × ") && line.contains(" GiB, Linux ") && !line.contains(" 0 GiB"), "{line}");
        assert_eq!(field("a\t: 1\nmodel name\t: X Y\n", "model name").as_deref(), Some("X Y"));
    }
}
