//! Images kept in memory and in a folder.
//!
//! A file is written under another name and renamed, so a reader sees all of it or nothing; its last 32 bytes are the
//! hash of the rest, so a damaged file is compiled again. A folder that cannot be written costs time, not success.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::compile::{KernelSource, compile, options};
use crate::CudaError;
use crate::library::Nvrtc;

type Key = [u8; 32];

/// Compiled images by (source, options, architecture, compiler version).
#[derive(Debug, Default)]
pub struct CubinCache {
    folder: Option<PathBuf>,
    images: Mutex<HashMap<Key, Arc<[u8]>>>,
}

impl CubinCache {
    /// A cache in `folder`, or in memory alone.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, images: Mutex::default() }
    }

    /// The image of `source`, compiled if it is not there yet.
    pub fn cubin(&self, nvrtc: &Nvrtc, source: &KernelSource<'_>, architecture: &str) -> Result<Arc<[u8]>, CudaError> {
        let key = key(nvrtc.version, source, architecture);
        if let Some(image) = self.images().get(&key) {
            return Ok(image.clone());
        }
        // Others may come meanwhile; two that compile the same get the same.
        let path = self.folder.as_ref().map(|f| f.join(format!("{}.cubin", hex(&key))));
        let kept = path.as_deref().and_then(read);
        let image: Arc<[u8]> = match kept {
            Some(image) => image.into(),
            None => {
                let image = compile(nvrtc, source, architecture)?.cubin;
                if let Some(path) = &path {
                    // Not being able to keep it is no error: it is compiled again next time.
                    let _ = write(path, &image);
                }
                image.into()
            }
        };
        self.images().insert(key, image.clone());
        Ok(image)
    }

    /// Has the images of several sources made, as many at once as there are processors. One that does not compile says so when
    /// it is asked for by itself.
    pub fn compile_all(&self, nvrtc: &Nvrtc, sources: &[KernelSource<'_>], architecture: &str) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _ = self.cubin(nvrtc, source, architecture);
            }
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..processors.min(sources.len()) {
                scope.spawn(work);
            }
        });
    }

    fn images(&self) -> MutexGuard<'_, HashMap<Key, Arc<[u8]>>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `VDNN_CACHE_DIR`, else `vdnn` in the user's cache folder; `None` when there is no home either.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("VDNN_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|f| f.join("vdnn")))
        .or_else(|| variable("HOME").map(|f| f.join(".cache/vdnn")))
}

fn key(version: (usize, usize), source: &KernelSource<'_>, architecture: &str) -> Key {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(format!("nvrtc {}.{}", version.0, version.1).as_bytes());
    part(source.name.as_bytes());
    part(source.text.as_bytes());
    for option in options(source, architecture) {
        part(option.as_bytes());
    }
    hash.finalize().into()
}

fn hex(key: &Key) -> String {
    key.iter().map(|b| format!("{b:02x}")).collect()
}

fn sum(image: &[u8]) -> Key {
    Sha256::digest(image).into()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let end = bytes.len().checked_sub(32)?;
    let whole = bytes[end..] == sum(&bytes[..end]);
    bytes.truncate(end);
    whole.then_some(bytes)
}

fn write(path: &Path, image: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&draft, [image, &sum(image)].concat())?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: KernelSource<'_> = KernelSource { name: "a.cu", text: "text", options: &[] };

    #[test]
    fn a_key_depends_on_everything_that_changes_the_image() {
        let base = key((13, 0), &SOURCE, "sm_90");
        assert_ne!(base, key((13, 1), &SOURCE, "sm_90"));
        assert_ne!(base, key((13, 0), &SOURCE, "sm_80"));
        assert_ne!(base, key((13, 0), &KernelSource { text: "texu", ..SOURCE }, "sm_90"));
        assert_ne!(base, key((13, 0), &KernelSource { options: &["-DA=1"], ..SOURCE }, "sm_90"));
        assert_eq!(base, key((13, 0), &SOURCE, "sm_90"));
    }

    #[test]
    fn a_kept_image_comes_back_and_a_damaged_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/x.cubin");
        write(&path, b"machine code").unwrap();
        assert_eq!(read(&path).unwrap(), b"machine code");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path), None);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(read(&path), None);
    }
}
