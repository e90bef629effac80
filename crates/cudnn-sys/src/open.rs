//! Opening cuDNN: which file, in which version, together with what it cannot live without.
//!
//! Order of events: find candidates; open the first; open its sister libraries from the same folder, before any call,
//! so that cuDNN cannot pick up those of another version; ask the version and refuse another major one; open the
//! cuBLASLt it was built for, because cuDNN ends the whole process when it does not find that later on. Only then is a
//! table handed out.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::search::{self, Hit, Place, Source, Surroundings};
use crate::table::Functions;
use crate::{MAJOR, MissingSymbol};

/// Why cuDNN could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// No file of any of the names exists, and the linker knows none either.
    #[error("no {library} found (looked for {names} in {} places); install it, or name its folder in {variable}", looked_in.len())]
    NotFound {
        /// The library asked for.
        library: String,
        /// File names looked for.
        names: String,
        /// Folders looked in, each with the reason.
        looked_in: Vec<String>,
        /// The variable that names a folder.
        variable: &'static str,
    },
    /// A file exists but the linker refuses it.
    #[error("{} cannot be opened: {reason}", path.display())]
    Unopenable {
        /// The file.
        path: PathBuf,
        /// The linker's words.
        reason: String,
    },
    /// Another major version than the bindings are for.
    #[error("{} is cuDNN {found}, but version {expected}.x is needed; name another one in VDNN_CUDNN_PATH", path.display())]
    OtherMajor {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The major version needed.
        expected: usize,
    },
    /// cuDNN would end the process without cuBLASLt.
    #[error("{} needs {needs}, which was not found; install cuBLAS {cuda_major}.x beside it, or name its folder in VDNN_CUDA_LIBS", path.display())]
    NoCublasLt {
        /// The cuDNN file.
        path: PathBuf,
        /// The file name of the library it needs.
        needs: String,
        /// The CUDA major version that cuDNN was built with.
        cuda_major: usize,
        /// Folders looked in, each with the reason.
        looked_in: Vec<String>,
    },
    /// A function that we call is missing.
    #[error("{}: {missing}", path.display())]
    Symbol {
        /// The file.
        path: PathBuf,
        /// The function.
        missing: MissingSymbol,
    },
    /// One process can use one cuDNN.
    #[error("cuDNN was already opened from {}; {} cannot be opened as well in this process", opened.display(), asked.display())]
    AlreadyOpen {
        /// The file in use.
        opened: PathBuf,
        /// The file asked for.
        asked: PathBuf,
    },
}

/// A library that is open and stays open until the process ends.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The file, or its bare name when the linker chose it.
    pub path: PathBuf,
    /// Why this one was taken.
    pub why: String,
}

/// cuDNN, open and checked.
#[derive(Debug)]
pub struct Cudnn {
    /// The functions.
    pub functions: Functions,
    /// The file and why it was taken.
    pub opened: Opened,
    /// As `cudnnGetVersion` says: 91900 for 9.19.0.
    pub version: usize,
    /// The CUDA that it was built with: 13010 for 13.1.
    pub cudart_version: usize,
    /// The cuBLASLt that goes with it.
    pub cublas_lt: Opened,
}

/// Opens a library for the whole process (`RTLD_GLOBAL`), so that later look-ups by its soname find this one.
pub fn load_global(path: &Path) -> Result<Library, OpenError> {
    // SAFETY: opening runs the library's initialisers; NVIDIA's expect nothing of the caller. The handle is leaked
    // by whoever keeps pointers into the library.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }
        .map_err(|e| OpenError::Unopenable { path: path.to_path_buf(), reason: e.to_string() })
}

/// Opens the first of `names` found in `places`, or, when no place has one, whatever the linker knows by that name.
pub fn open_first(library: &str, places: &[Place], names: &[&str]) -> Result<(Library, Opened), OpenError> {
    let hits = search::find(places, names);
    let mut first_error = None;
    for hit in &hits {
        match load_global(&hit.path) {
            Ok(open) => return Ok((open, Opened { path: hit.path.clone(), why: why(hit, &hits) })),
            Err(e) => first_error = first_error.or(Some(e)),
        }
    }
    for name in names {
        if let Ok(open) = load_global(Path::new(name)) {
            return Ok((open, Opened { path: PathBuf::from(name), why: "known to the dynamic linker".into() }));
        }
    }
    Err(first_error.unwrap_or_else(|| OpenError::NotFound {
        library: library.into(),
        names: names.join(", "),
        looked_in: search::describe(places),
        variable: "VDNN_CUDA_LIBS",
    }))
}

/// Opens cuDNN once per process; later calls get the same one.
///
/// `named` (a file or its folder) wins over everything and is not fallen back from; without it the variable
/// `VDNN_CUDNN_PATH` does the same; without both the places are tried in order.
pub fn open(around: &Surroundings, named: Option<&Path>) -> Result<&'static Cudnn, OpenError> {
    static OPEN: OnceLock<Cudnn> = OnceLock::new();
    static OPENING: Mutex<()> = Mutex::new(());
    let variable = around.variables.get("VDNN_CUDNN_PATH").map(PathBuf::from);
    let named = named.map(Path::to_path_buf).or(variable).map(|p| file_of(&p));
    // Two threads must not open two versions at once.
    let _guard = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cudnn) = OPEN.get() {
        return match named {
            Some(asked) if asked.canonicalize().ok() != cudnn.opened.path.canonicalize().ok() => {
                Err(OpenError::AlreadyOpen { opened: cudnn.opened.path.clone(), asked })
            }
            _ => Ok(cudnn),
        };
    }
    let places = search::places(around);
    let cudnn = open_checked(&places, named)?;
    Ok(OPEN.get_or_init(|| cudnn))
}

/// "9.19.0" of 91900; before version 9 the thousands were the major version.
pub fn version_text(version: usize) -> String {
    let major = major_of(version);
    if major >= 9 {
        format!("{major}.{}.{}", version / 100 % 100, version % 100)
    } else {
        format!("{major}.{}.{}", version / 100 % 10, version % 100)
    }
}

/// The major version: 9 of 91900, 8 of 8907.
pub fn major_of(version: usize) -> usize {
    if version >= 90000 { version / 10000 } else { version / 1000 }
}

fn why(hit: &Hit, hits: &[Hit]) -> String {
    match hits.len() {
        1 => hit.source.to_string(),
        n => format!("{}, first of {n} found", hit.source),
    }
}

/// A folder stands for the library in it.
fn file_of(path: &Path) -> PathBuf {
    let inside = [path.join("libcudnn.so.9"), path.join("lib/libcudnn.so.9"), path.join("libcudnn.so")];
    inside.into_iter().find(|p| p.is_file()).unwrap_or_else(|| path.to_path_buf())
}

fn open_checked(places: &[Place], named: Option<PathBuf>) -> Result<Cudnn, OpenError> {
    let (library, opened) = match named {
        Some(path) => (load_global(&path)?, Opened { path, why: Source::Named.to_string() }),
        // The unversioned name comes second: it may be an older major version in an earlier place.
        None => open_first("cuDNN", places, &["libcudnn.so.9"])
            .or_else(|e| open_first("cuDNN", places, &["libcudnn.so"]).map_err(|_| e))?,
    };
    open_sisters(&opened.path);
    check_major(&library, &opened.path)?;
    let symbol = |missing| OpenError::Symbol { path: opened.path.clone(), missing };
    let functions = Functions::resolve(&library).map_err(symbol)?;
    // The functions are used until the process ends, and cuDNN's threads do not survive being unloaded.
    std::mem::forget(library);
    // SAFETY: both take nothing, need no GPU, and were seen to work without cuBLASLt.
    let (version, cudart_version) = unsafe { ((functions.get_version)(), (functions.get_cudart_version)()) };
    let cublas_lt = open_cublas_lt(places, &opened.path, cudart_version / 1000)?;
    Ok(Cudnn { functions, opened, version, cudart_version, cublas_lt })
}

/// Asks the version and nothing else: an older major version lacks functions, and those it has differ.
fn check_major(library: &Library, path: &Path) -> Result<(), OpenError> {
    let symbol = "cudnnGetVersion";
    // SAFETY: `size_t cudnnGetVersion(void)` has had this signature in every version.
    let version = unsafe { library.get::<unsafe extern "C" fn() -> usize>(symbol.as_bytes()).map(|f| f()) }
        .map_err(|_| OpenError::Symbol { path: path.to_path_buf(), missing: MissingSymbol { symbol } })?;
    if major_of(version) != MAJOR {
        return Err(OpenError::OtherMajor { path: path.to_path_buf(), found: version_text(version), expected: MAJOR });
    }
    Ok(())
}

/// Opens the libraries that cuDNN itself looks up by name, the first of them to answer for its version. A wheel's `libcudnn.so.9` searches
/// `LD_LIBRARY_PATH` before its own folder, and would take the parts of another version from there.
fn open_sisters(cudnn: &Path) {
    let Some(folder) = cudnn.parent().filter(|f| !f.as_os_str().is_empty()) else { return };
    for part in ["graph", "ops", "cnn", "heuristic", "engines_runtime_compiled", "engines_precompiled"] {
        let path = folder.join(format!("libcudnn_{part}.so.{MAJOR}"));
        if path.is_file()
            && let Ok(library) = load_global(&path)
        {
            std::mem::forget(library);
        }
    }
}

fn open_cublas_lt(places: &[Place], cudnn: &Path, cuda_major: usize) -> Result<Opened, OpenError> {
    let needs = format!("libcublasLt.so.{cuda_major}");
    let (library, opened) = open_first("cuBLASLt", places, &[&needs]).map_err(|_| OpenError::NoCublasLt {
        path: cudnn.to_path_buf(),
        needs: needs.clone(),
        cuda_major,
        looked_in: search::describe(places),
    })?;
    std::mem::forget(library);
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(91900), "9.19.0");
        assert_eq!(version_text(90100), "9.1.0");
        assert_eq!(version_text(8907), "8.9.7");
        assert_eq!((major_of(91900), major_of(8907), major_of(7605)), (9, 8, 7));
    }

    #[test]
    fn a_missing_library_is_an_error_that_lists_the_places() {
        let dir = tempfile::tempdir().unwrap();
        let places = [Place { directory: dir.path().to_path_buf(), source: Source::Named }];
        match open_first("cuSomething", &places, &["libcusomething.so.13"]) {
            Err(OpenError::NotFound { looked_in, names, .. }) => {
                assert_eq!(names, "libcusomething.so.13");
                assert_eq!(looked_in.len(), 1);
            }
            other => panic!("expected NotFound, got {other:?}"),
        }
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_the_linkers_words() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libcudnn.so.9");
        std::fs::write(&file, b"not a library").unwrap();
        let error = open_checked(&[], Some(file)).unwrap_err();
        assert!(matches!(error, OpenError::Unopenable { .. }), "{error}");
    }

    #[test]
    fn a_library_that_is_not_cudnn_is_refused_by_its_missing_function() {
        let dir = tempfile::tempdir().unwrap();
        let error = open_checked(&[], Some(PathBuf::from("libm.so.6"))).unwrap_err();
        assert!(error.to_string().contains("cudnnGetVersion"), "{error}");
        assert_eq!(file_of(dir.path()), dir.path());
    }
}
