//! Where CUDA libraries may lie, in the order in which they are tried, and why each place is on the list.
//!
//! Nothing is opened here; the only input besides the file system is a [`Surroundings`], so the order can be tested
//! under an invented root.
//!
//! ```text
//!  named ► LD_LIBRARY_PATH ► CUDA_HOME ► system ► /usr/local/cuda* ► active Python's wheels ► other wheels
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a folder is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// An option or a variable of ours names it.
    Named,
    /// A folder of `LD_LIBRARY_PATH`.
    LdLibraryPath,
    /// `CUDA_HOME` or `CUDA_PATH`.
    CudaHome,
    /// A folder of the dynamic linker.
    System,
    /// A toolkit under `/usr/local`.
    UsrLocal,
    /// A pip wheel of the active Python.
    ActivePython,
    /// A pip wheel of another Python found on this machine.
    OtherPython,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named => "named by option or variable",
            Self::LdLibraryPath => "LD_LIBRARY_PATH",
            Self::CudaHome => "CUDA_HOME",
            Self::System => "system path",
            Self::UsrLocal => "toolkit under /usr/local",
            Self::ActivePython => "wheel of the active Python",
            Self::OtherPython => "wheel of another Python",
        })
    }
}

/// A folder to look in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The folder.
    pub directory: PathBuf,
    /// Why it is on the list.
    pub source: Source,
}

/// A library file that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Why its folder was searched.
    pub source: Source,
}

/// What the search depends on: variables, the root of the file system, folders named by the user.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Environment variables by name.
    pub variables: BTreeMap<String, OsString>,
    /// `/`, except in tests.
    pub root: PathBuf,
    /// Folders to look in before all others: library folders, or a wheel folder `site-packages/nvidia`.
    pub named: Vec<PathBuf>,
}

impl Surroundings {
    /// Those of this process. `VDNN_CUDA_LIBS` may name folders, separated like those of `PATH`.
    pub fn of_process() -> Self {
        let variables: BTreeMap<String, OsString> =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v))).collect();
        let mut this = Self { variables, root: PathBuf::from("/"), named: Vec::new() };
        this.named = this.paths("VDNN_CUDA_LIBS");
        this
    }

    fn paths(&self, variable: &str) -> Vec<PathBuf> {
        let value = self.variables.get(variable);
        let parts = value.map(|v| std::env::split_paths(v).collect::<Vec<_>>()).unwrap_or_default();
        parts.into_iter().filter(|p| !p.as_os_str().is_empty()).collect()
    }

    fn under_root(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// All places that exist, in the order in which they are tried, without repetition.
pub fn places(around: &Surroundings) -> Vec<Place> {
    let mut list: Vec<Place> = Vec::new();
    let mut add = |source: Source, directories: Vec<PathBuf>| {
        for directory in directories {
            if directory.is_dir() && !list.iter().any(|p| p.directory == directory) {
                list.push(Place { directory, source });
            }
        }
    };
    add(Source::Named, around.named.iter().flat_map(|d| named_folders(d)).collect());
    add(Source::LdLibraryPath, around.paths("LD_LIBRARY_PATH"));
    add(Source::CudaHome, cuda_home(around));
    add(Source::System, system_folders(around));
    add(Source::UsrLocal, toolkits(around));
    add(Source::ActivePython, wheel_folders(&active_sites(around)));
    add(Source::OtherPython, wheel_folders(&other_sites(around)));
    list
}

/// The files called `names` in `places`: places in order, within a place the names in order.
pub fn find(places: &[Place], names: &[&str]) -> Vec<Hit> {
    let mut hits: Vec<Hit> = Vec::new();
    for place in places {
        for name in names {
            let path = place.directory.join(name);
            if path.is_file() && !hits.iter().any(|h| same_file(&h.path, &path)) {
                hits.push(Hit { path, source: place.source });
            }
        }
    }
    hits
}

/// The places as lines for a report: `folder (why)`.
pub fn describe(places: &[Place]) -> Vec<String> {
    places.iter().map(|p| format!("{} ({})", p.directory.display(), p.source)).collect()
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// A named folder counts itself, its `lib` folders, and, when it is a wheel folder, the libraries of each wheel.
fn named_folders(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_path_buf(), folder.join("lib64"), folder.join("lib")];
    all.extend(subfolders(folder).into_iter().map(|wheel| wheel.join("lib")));
    all
}

fn cuda_home(around: &Surroundings) -> Vec<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|v| around.variables.get(*v)).map(PathBuf::from);
    homes.flat_map(|h| [h.join("lib64"), h.join("lib")]).collect()
}

/// The linker's own folders, and those its configuration names.
fn system_folders(around: &Surroundings) -> Vec<PathBuf> {
    let mut configs = vec![around.under_root("etc/ld.so.conf")];
    let mut extra: Vec<PathBuf> = list(&around.under_root("etc/ld.so.conf.d"));
    extra.retain(|p| p.extension().is_some_and(|e| e == "conf"));
    configs.extend(extra);
    let mut folders: Vec<PathBuf> = Vec::new();
    for config in configs {
        let text = std::fs::read_to_string(config).unwrap_or_default();
        let lines = text.lines().map(str::trim).filter(|l| l.starts_with('/'));
        folders.extend(lines.map(|l| around.under_root(l)));
    }
    let arch = std::env::consts::ARCH;
    for fixed in [format!("lib/{arch}-linux-gnu"), format!("usr/lib/{arch}-linux-gnu")] {
        folders.push(around.under_root(&fixed));
    }
    for fixed in ["lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib", "usr/local/nvidia/lib64", "usr/lib/wsl/lib"]
    {
        folders.push(around.under_root(fixed));
    }
    folders
}

/// `/usr/local/cuda`, then the numbered toolkits, newest name first.
fn toolkits(around: &Surroundings) -> Vec<PathBuf> {
    let mut homes = list(&around.under_root("usr/local"));
    homes.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("cuda-")));
    homes.reverse();
    homes.insert(0, around.under_root("usr/local/cuda"));
    let arch = std::env::consts::ARCH;
    homes.iter().flat_map(|h| [h.join("lib64"), h.join(format!("targets/{arch}-linux/lib"))]).collect()
}

/// Package folders of the Python that a shell here would start.
fn active_sites(around: &Surroundings) -> Vec<PathBuf> {
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|v| around.variables.get(*v)).map(PathBuf::from);
    let mut sites: Vec<PathBuf> = prefixes.flat_map(|p| site_packages(&p.join("lib"))).collect();
    for folder in around.paths("PATH") {
        if folder.join("python3").is_file()
            && let Some(prefix) = folder.parent()
        {
            sites.extend(site_packages(&prefix.join("lib")));
        }
    }
    sites
}

/// Package folders of other Pythons in the usual places.
fn other_sites(around: &Surroundings) -> Vec<PathBuf> {
    let mut libs = vec![around.under_root("usr/local/lib"), around.under_root("usr/lib")];
    for prefix in subfolders(&around.under_root("opt")) {
        libs.extend([prefix.join("lib"), prefix.join(".venv/lib"), prefix.join("venv/lib")]);
    }
    if let Some(home) = around.variables.get("HOME").map(PathBuf::from) {
        libs.push(home.join(".local/lib"));
        libs.extend(subfolders(&home.join(".pyenv/versions")).into_iter().map(|v| v.join("lib")));
    }
    libs.iter().flat_map(|l| site_packages(l)).collect()
}

/// `lib/python3*/site-packages` and `dist-packages`.
fn site_packages(lib: &Path) -> Vec<PathBuf> {
    let mut pythons = subfolders(lib);
    pythons.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")));
    pythons.iter().flat_map(|p| [p.join("site-packages"), p.join("dist-packages")]).filter(|p| p.is_dir()).collect()
}

/// The library folders of NVIDIA's wheels in package folders.
fn wheel_folders(sites: &[PathBuf]) -> Vec<PathBuf> {
    sites.iter().flat_map(|s| subfolders(&s.join("nvidia"))).map(|wheel| wheel.join("lib")).collect()
}

fn subfolders(path: &Path) -> Vec<PathBuf> {
    let mut all = list(path);
    all.retain(|p| p.is_dir());
    all
}

/// The entries of a folder in name order; nothing when it cannot be read.
fn list(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut all: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"").unwrap();
    }

    /// An invented machine under `root` with cuDNN in five places.
    fn machine(root: &Path) -> Surroundings {
        let wheel = "lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9";
        for file in ["usr/local/cuda-13.0/lib64/libcudnn.so.9", "deps/lib/libcudnn.so.9", "ldpath/libcudnn.so.9"] {
            touch(&root.join(file));
        }
        touch(&root.join("venv").join(wheel));
        touch(&root.join("opt/tool/.venv").join(wheel));
        touch(&root.join("named/cudnn/lib/libcudnn.so.9"));
        std::fs::create_dir_all(root.join("etc/ld.so.conf.d")).unwrap();
        std::fs::write(root.join("etc/ld.so.conf.d/a.conf"), "# comment\n/deps/lib\n").unwrap();
        let mut around = Surroundings { root: root.to_path_buf(), ..Default::default() };
        around.variables.insert("LD_LIBRARY_PATH".into(), root.join("ldpath").into());
        around.variables.insert("VIRTUAL_ENV".into(), root.join("venv").into());
        around.named = vec![root.join("named")];
        around
    }

    #[test]
    fn every_place_is_found_in_the_stated_order() {
        let dir = tempfile::tempdir().unwrap();
        let hits = find(&places(&machine(dir.path())), &["libcudnn.so.9", "libcudnn.so"]);
        let sources: Vec<Source> = hits.iter().map(|h| h.source).collect();
        use Source::*;
        assert_eq!(sources, [Named, LdLibraryPath, System, UsrLocal, ActivePython, OtherPython]);
    }

    #[test]
    fn a_link_to_a_library_already_listed_is_not_listed_again() {
        let dir = tempfile::tempdir().unwrap();
        let around = machine(dir.path());
        std::os::unix::fs::symlink("libcudnn.so.9", dir.path().join("ldpath/libcudnn.so")).unwrap();
        let hits = find(&places(&around), &["libcudnn.so.9", "libcudnn.so"]);
        assert_eq!(hits.iter().filter(|h| h.source == Source::LdLibraryPath).count(), 1);
    }

    #[test]
    fn an_empty_machine_has_no_places() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(places(&Surroundings { root: dir.path().join("nothing"), ..Default::default() }), []);
    }
}
