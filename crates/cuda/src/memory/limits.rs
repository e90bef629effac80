//! How much host memory this process may pin: what is available, what the control group allows, what `ulimit -l` says.

use std::path::Path;

/// The limits, in bytes; `None` where there is none or it cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLimits {
    /// Memory available without swapping.
    pub available: Option<u64>,
    /// What is left of the control group's limit (a container's memory).
    pub cgroup_left: Option<u64>,
    /// `ulimit -l`: bytes that the process may lock. CUDA's own pinning is not counted by all driver versions.
    pub memlock: Option<u64>,
}

impl HostLimits {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self::under(Path::new("/"))
    }

    fn under(root: &Path) -> Self {
        Self { available: available(root), cgroup_left: cgroup_left(root), memlock: memlock() }
    }

    /// The most that can be pinned without the system killing somebody.
    pub fn pinnable(&self) -> Option<u64> {
        [self.available, self.cgroup_left].into_iter().flatten().min()
    }
}

impl std::fmt::Display for HostLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: Option<u64>| bytes.map_or("no limit".to_string(), |b| format!("{b} bytes"));
        write!(
            f,
            "available {}, left in the control group {}, memlock {}",
            self.available.map_or("unknown".to_string(), |b| format!("{b} bytes")),
            text(self.cgroup_left),
            text(self.memlock)
        )
    }
}

fn available(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// The tightest of the group of this process and the mounted root group, in version 2 or 1 of the interface.
fn cgroup_left(root: &Path) -> Option<u64> {
    let base = root.join("sys/fs/cgroup");
    let mut groups = vec![base.clone(), base.join("memory")];
    let own = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kind), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        match kind {
            "" => groups.push(base.join(path)),
            k if k.split(',').any(|c| c == "memory") => groups.push(base.join("memory").join(path)),
            _ => {}
        }
    }
    groups.iter().flat_map(|g| [left(g, "memory.max", "memory.current"), left(g, V1_LIMIT, V1_USAGE)]).flatten().min()
}

const V1_LIMIT: &str = "memory.limit_in_bytes";
const V1_USAGE: &str = "memory.usage_in_bytes";

fn left(group: &Path, limit: &str, usage: &str) -> Option<u64> {
    let number = |name: &str| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // Without a limit version 2 says "max" and version 1 a number near 2^63.
    let limit = number(limit).filter(|l| *l < 1 << 60)?;
    Some(limit.saturating_sub(number(usage).unwrap_or(0)))
}

fn memlock() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one struct.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_limit_counts() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   4 kB\n");
        write(dir.path(), "proc/self/cgroup", "0::/job\n");
        write(dir.path(), "sys/fs/cgroup/memory.max", "max\n");
        write(dir.path(), "sys/fs/cgroup/job/memory.max", "3000\n");
        write(dir.path(), "sys/fs/cgroup/job/memory.current", "1000\n");
        let limits = HostLimits::under(dir.path());
        assert_eq!((limits.available, limits.cgroup_left), (Some(4096), Some(2000)));
        assert_eq!(limits.pinnable(), Some(2000));
    }

    #[test]
    fn version_1_without_a_limit_is_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(HostLimits::under(dir.path()).pinnable(), None);
    }
}
