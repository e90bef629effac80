//! The file in which values rest that pinned host memory does not hold: one of fixed size, without a name.
//!
//! ```text
//!  create  new file ─► room for all planned bytes taken ─► name removed ─► positional writes and reads ─► gone when closed
//! ```
//! Room is taken when it is made, so a full file system is met before the first step. Without a name nothing is left behind,
//! whatever becomes of the program. What the system keeps of the file in memory that nobody else wants is its own affair.

use crate::DeviceError;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use vdnn_tensor::Bytes;

/// Zeros written at a time where a file system cannot take room by itself.
const ZEROS: usize = 1 << 20;

/// A file without a name.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    /// The name that it had, for messages.
    path: PathBuf,
    bytes: Bytes,
}

impl DiskFile {
    /// A file of `bytes` in `folder`.
    ///
    /// # Errors
    /// [`DeviceError::DiskFolder`] when the folder is not there or cannot be written, or lacks the room.
    pub fn create(folder: &Path, bytes: Bytes) -> Result<Self, DeviceError> {
        let refuse = |error: io::Error| DeviceError::DiskFolder {
            folder: folder.display().to_string(),
            bytes,
            reason: error.to_string(),
        };
        let (file, path) = new_file(folder).map_err(refuse)?;
        let taken = take_room(&file, bytes);
        // A name that cannot be removed would leave the file behind: no reason to go on.
        std::fs::remove_file(&path).and(taken).map_err(refuse)?;
        Ok(DiskFile { file, path, bytes })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Writes `from` at `offset`.
    ///
    /// # Errors
    /// [`DeviceError::Disk`].
    pub fn write(&self, offset: Bytes, from: &[u8]) -> Result<(), DeviceError> {
        self.inside(offset, from.len())
            .and_then(|()| self.file.write_all_at(from, offset))
            .map_err(|error| self.failed("write", offset, from.len(), &error))
    }

    /// Reads from `offset` into `to`.
    ///
    /// # Errors
    /// [`DeviceError::Disk`].
    pub fn read(&self, offset: Bytes, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inside(offset, to.len())
            .and_then(|()| self.file.read_exact_at(to, offset))
            .map_err(|error| self.failed("read", offset, to.len(), &error))
    }

    /// A file that is there and can be read only: every write fails.
    #[cfg(test)]
    pub(crate) fn read_only(path: &Path, bytes: Bytes) -> Self {
        DiskFile { file: File::open(path).unwrap(), path: path.to_path_buf(), bytes }
    }

    fn inside(&self, offset: Bytes, len: usize) -> io::Result<()> {
        match offset.checked_add(len as Bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(io::Error::other(format!("the file has {} bytes", self.bytes))),
        }
    }

    fn failed(&self, way: &'static str, offset: Bytes, len: usize, error: &io::Error) -> DeviceError {
        let file = self.path.display().to_string();
        DeviceError::Disk { way, file, offset, bytes: len as Bytes, reason: error.to_string() }
    }
}

/// Bytes that a folder's file system has free for this user.
///
/// # Errors
/// When there is no such folder, or the system does not say.
pub fn free_bytes(folder: &Path) -> io::Result<Bytes> {
    let room = rustix::fs::statvfs(folder)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// A file that was not there before, which only this user may open.
fn new_file(folder: &Path) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("vdnn-{}-{number}.disk", std::process::id()));
        match options.open(&path) {
            // Left by a program that ended between making the file and removing its name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (file, path)),
        }
    }
}

/// Takes room for all bytes, so that no write can lack it later.
fn take_room(file: &File, bytes: Bytes) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_zeros(file, bytes),
            done => return done.map_err(io::Error::from),
        }
    }
}

fn write_zeros(mut file: &File, bytes: Bytes) -> io::Result<()> {
    let zeros = vec![0; ZEROS];
    let mut left = bytes;
    while left > 0 {
        let some = left.min(ZEROS as Bytes);
        file.write_all(&zeros[..some as usize])?;
        left -= some;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_in(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn bytes_come_back_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = DiskFile::create(folder.path(), 10_000).unwrap();
        assert_eq!((files_in(folder.path()), file.bytes()), (0, 10_000));
        let taken = file.file.metadata().unwrap();
        assert_eq!(taken.len(), 10_000);
        assert!(std::os::unix::fs::MetadataExt::blocks(&taken) * 512 >= 10_000, "room is taken, not promised");
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        file.write(5000, &bytes).unwrap();
        let mut back = vec![0; 5000];
        file.read(5000, &mut back).unwrap();
        assert_eq!(back, bytes);
        file.read(0, &mut back).unwrap();
        assert_eq!(back, vec![0; 5000]);
        drop(file);
        assert_eq!(files_in(folder.path()), 0);
    }

    #[test]
    fn zeros_take_room_too() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = new_file(folder.path()).unwrap();
        write_zeros(&file, ZEROS as Bytes + 7).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), ZEROS as Bytes + 7);
    }

    #[test]
    fn a_folder_that_cannot_hold_it_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = DiskFile::create(&missing, 1).unwrap_err().to_string();
        assert!(error.contains("missing") && error.contains("os error 2") && error.contains("--disk-dir"), "{error}");
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = DiskFile::create(&file, 1).unwrap_err().to_string();
        assert!(error.contains("os error 20"), "{error}");
        // More than any file system has.
        let error = DiskFile::create(folder.path(), 1 << 62).unwrap_err();
        assert!(matches!(&error, DeviceError::DiskFolder { bytes, .. } if *bytes == 1 << 62), "{error}");
        assert_eq!(files_in(folder.path()), 1, "what could not be taken is removed");
    }

    #[test]
    fn a_file_takes_what_its_folder_had() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_bytes(folder.path()).unwrap() > 0);
        assert!(free_bytes(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn a_failed_write_or_read_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spilled");
        std::fs::write(&path, vec![1; 100]).unwrap();
        // Open for reading, and shorter than it should be.
        let file = DiskFile::read_only(&path, 200);
        let error = file.write(64, &[0; 32]).unwrap_err().to_string();
        assert!(error.contains("cannot write 32 bytes at 64 of") && error.contains("spilled"), "{error}");
        assert!(error.contains("os error 9"), "{error}");
        let error = file.read(90, &mut [0; 20]).unwrap_err().to_string();
        assert!(error.contains("cannot read 20 bytes at 90 of"), "{error}");
        let error = file.read(190, &mut [0; 20]).unwrap_err().to_string();
        assert!(error.contains("the file has 200 bytes"), "{error}");
    }
}
