//! The IDX format of MNIST and its kin: a magic number, one big-endian size per dimension, then bytes.
//!
//! ```text
//!  images  00 00 08 03 | n | height | width | n × height × width bytes
//!  labels  00 00 08 01 | n | n bytes
//! ```
//!
//! A file may be packed with gzip; its first two bytes tell, not its name. Nothing is allocated on a header's word
//! alone: a damaged header cannot ask for more memory than the file has bytes.
//!
//! Left to others: which files make a data set (`folder`), whether labels name classes (`dataset`).

use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::Error;

/// What an IDX file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes in three dimensions, `[n, height, width]`.
    Images,
    /// Bytes in one dimension, `[n]`.
    Labels,
}

impl Content {
    fn magic(self) -> u32 {
        0x0800 | self.n_dims() as u32
    }

    fn n_dims(self) -> usize {
        match self {
            Content::Images => 3,
            Content::Labels => 1,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Content::Images => "images (three dimensions)",
            Content::Labels => "labels (one dimension)",
        }
    }

    fn other(self) -> Content {
        match self {
            Content::Images => Content::Labels,
            Content::Labels => Content::Images,
        }
    }
}

/// A decoded IDX file.
#[derive(Debug, PartialEq, Eq)]
pub struct Idx {
    /// The header's bytes, as read.
    pub header: Vec<u8>,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// The content, row-major, as many bytes as the product of `dims`.
    pub bytes: Vec<u8>,
}

/// Reads one IDX file, plain or packed.
///
/// # Errors
/// Any error that concerns one file: unreadable, damaged, cut short, going on too long, or of other content.
pub fn read(path: &Path, content: Content) -> Result<Idx, Error> {
    let file = File::open(path).map_err(|cause| unreadable(path, cause))?;
    decode(BufReader::with_capacity(1 << 16, file), path, content)
}

/// Decodes IDX from any reader; `origin` names it in errors.
///
/// # Errors
/// As [`read`].
pub fn decode(mut reader: impl BufRead, origin: &Path, content: Content) -> Result<Idx, Error> {
    let head = reader.fill_buf().map_err(|cause| unreadable(origin, cause))?;
    if head.starts_with(&[0x1f, 0x8b]) {
        decode_plain(MultiGzDecoder::new(reader), origin, content)
    } else {
        decode_plain(reader, origin, content)
    }
}

fn decode_plain(mut reader: impl Read, origin: &Path, content: Content) -> Result<Idx, Error> {
    let header_len = 4 + 4 * content.n_dims() as u64;
    let (header, _) = read_up_to(&mut reader, header_len, origin)?;
    if header.len() >= 4 {
        check_magic(be_u32(&header[..4]), origin, content)?;
    }
    let found = header.len() as u64;
    if found < header_len {
        return Err(Error::Truncated { path: origin.into(), expected: header_len, found });
    }
    let dims: Vec<u32> = header[4..].chunks_exact(4).map(be_u32).collect();
    let Some(body_len) = body_len(&dims) else {
        return Err(Error::BadDimensions { path: origin.into(), dims });
    };

    // One byte more than announced: it finds trailing bytes, and makes the gzip decoder check its sum at the end.
    let (bytes, cut) = read_up_to(&mut reader, body_len + 1, origin)?;
    let (expected, found) = (header_len + body_len, header_len + bytes.len() as u64);
    match found.cmp(&expected) {
        Ordering::Less => Err(Error::Truncated { path: origin.into(), expected, found }),
        Ordering::Greater => Err(Error::TrailingBytes { path: origin.into(), expected }),
        Ordering::Equal if cut => {
            Err(Error::Corrupt { path: origin.into(), reason: "it ends inside its check sum".into() })
        }
        Ordering::Equal => Ok(Idx { header, dims: dims.iter().map(|&d| d as usize).collect(), bytes }),
    }
}

/// Bytes of content, or nothing for a dimension of zero or a product that does not fit a file offset.
fn body_len(dims: &[u32]) -> Option<u64> {
    let product = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(u64::from(d)))?;
    (product > 0 && product < i64::MAX as u64 - 64).then_some(product)
}

fn check_magic(found: u32, origin: &Path, content: Content) -> Result<(), Error> {
    if found == content.magic() {
        Ok(())
    } else if found == content.other().magic() {
        let (expected, found) = (content.words(), content.other().words());
        Err(Error::Mislabelled { path: origin.into(), expected, found })
    } else {
        let (content, expected) = (content.words(), content.magic());
        Err(Error::WrongMagic { path: origin.into(), content, expected, found })
    }
}

/// At most `limit` bytes, fewer where the stream ends; and whether a gzip stream ended in its middle.
fn read_up_to(reader: &mut impl Read, limit: u64, origin: &Path) -> Result<(Vec<u8>, bool), Error> {
    let mut bytes = Vec::with_capacity(limit.min(1 << 20) as usize);
    match reader.take(limit).read_to_end(&mut bytes) {
        Ok(_) => Ok((bytes, false)),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok((bytes, true)),
        Err(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput) => {
            Err(Error::Corrupt { path: origin.into(), reason: e.to_string() })
        }
        Err(cause) => Err(unreadable(origin, cause)),
    }
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, &b| (n << 8) | u32::from(b))
}

fn unreadable(origin: &Path, cause: std::io::Error) -> Error {
    Error::Unreadable { path: origin.into(), cause }
}
