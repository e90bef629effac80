//! Measurements kept between runs, in one file for a card, a driver and library versions, with what was taken off their times.
//!
//! A file is written under another name and renamed. One that cannot be read is measured again; one that cannot be
//! written costs time, not success.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use vdnn_schedule::Choice;

use super::chain::LaunchTimes;

/// Number of the file's format. The first one's times were of launches by themselves, the second one's over constants.
const FORMAT: u32 = 3;

/// What one kernel was measured to take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Worthwhile choices, fastest first.
    pub choices: Vec<Choice>,
    /// The least workspace of the plans that did not fit free memory then; they may fit later.
    pub too_large: Option<u64>,
    /// False when time ran out before all plans were tried. Such entries are not kept in files.
    #[serde(skip, default = "yes")]
    pub complete: bool,
}

fn yes() -> bool {
    true
}

impl Measured {
    /// Whether a new measurement with so many bytes free could find anything else.
    pub fn holds(&self, available: u64) -> bool {
        self.too_large.is_none_or(|bytes| bytes > available)
    }
}

#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    device: String,
    /// What the times of kernels are without; `None` where it could not be measured.
    launch: Option<LaunchTimes>,
    #[serde(flatten)]
    known: Known,
}

/// What a file is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    /// By the kernel's key.
    kernels: BTreeMap<String, Measured>,
    /// By the network's key: how many times as long each of its kernels takes in the middle of the others.
    paces: BTreeMap<String, Vec<f64>>,
}

/// Measurements by key.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    device: String,
    path: Option<PathBuf>,
    launch: Option<LaunchTimes>,
    known: Known,
    changed: bool,
}

impl Measurements {
    /// Those of a device, from its file in `folder` if there is one. `device` names card, driver and library versions.
    pub fn open(folder: Option<&Path>, device: &str) -> Self {
        let path = folder.map(|folder| folder.join(file_name(device)));
        let (launch, known) = path.as_deref().map(|path| read(path, device)).unwrap_or_default();
        Measurements { device: device.to_string(), path, launch, known, changed: false }
    }

    /// What launches were found to take, which all times rest on.
    pub fn launch(&self) -> Option<LaunchTimes> {
        self.launch
    }

    /// Records what launches take. Kernels are measured after that.
    pub fn record_launch(&mut self, launch: LaunchTimes) {
        self.launch = Some(launch);
    }

    pub fn find(&self, key: &str) -> Option<&Measured> {
        self.known.kernels.get(key)
    }

    pub fn record(&mut self, key: String, measured: Measured) {
        self.changed |= measured.complete;
        self.known.kernels.insert(key, measured);
    }

    /// What a network's kernels take in the middle of the others, in order, as multiples of what they take alone.
    pub fn paces(&self, key: &str) -> Option<&[f64]> {
        self.known.paces.get(key).map(Vec::as_slice)
    }

    pub fn record_paces(&mut self, key: String, paces: Vec<f64>) {
        self.changed = true;
        self.known.paces.insert(key, paces);
    }

    /// Writes what is new, together with what another process wrote meanwhile.
    pub fn save(&mut self) {
        let Some(path) = self.path.as_deref().filter(|_| self.changed) else { return };
        let (_, mut known) = read(path, &self.device);
        let complete = self.known.kernels.iter().filter(|(_, measured)| measured.complete);
        known.kernels.extend(complete.map(|(key, measured)| (key.clone(), measured.clone())));
        known.paces.extend(self.known.paces.clone());
        // Not being able to keep it is no error: it is measured again next time.
        let _ = write(path, &File { format: FORMAT, device: self.device.clone(), launch: self.launch, known });
        self.changed = false;
    }
}

fn file_name(device: &str) -> String {
    let hash = Sha256::digest(device.as_bytes());
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("measured-{hex}.json")
}

fn read(path: &Path, device: &str) -> (Option<LaunchTimes>, Known) {
    let file = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<File>(&bytes).ok());
    match file {
        Some(file) if file.format == FORMAT && file.device == device => (file.launch, file.known),
        _ => (None, Known::default()),
    }
}

fn write(path: &Path, file: &File) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&draft, serde_json::to_vec(file)?)?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(seconds: f64, complete: bool) -> Measured {
        let choice = Choice { algorithm: "eng1{k2=3}".to_string(), workspace: 64, seconds, deterministic: true };
        Measured { choices: vec![choice], too_large: Some(1 << 40), complete }
    }

    #[test]
    fn measurements_come_back_for_the_same_device_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Measurements::open(Some(dir.path()), "card, cuDNN 9.19");
        first.record("a".to_string(), measured(1e-3, true));
        first.record("b".to_string(), measured(2e-3, false));
        first.save();
        let again = Measurements::open(Some(dir.path()), "card, cuDNN 9.19");
        assert_eq!(again.find("a"), Some(&measured(1e-3, true)));
        assert_eq!(again.find("b"), None, "cut short, so measured again");
        assert_eq!(Measurements::open(Some(dir.path()), "card, cuDNN 9.20").find("a"), None);
    }

    #[test]
    fn what_was_taken_off_comes_back_with_the_times() {
        let dir = tempfile::tempdir().unwrap();
        let launch = LaunchTimes { alone: 4.5e-6, chained: 2.25e-6 };
        let mut first = Measurements::open(Some(dir.path()), "card");
        assert_eq!(first.launch(), None);
        first.record_launch(launch);
        first.record("a".to_string(), measured(1e-3, true));
        first.record_paces("network".to_string(), vec![1.125, 1.0]);
        first.save();
        let again = Measurements::open(Some(dir.path()), "card");
        assert_eq!((again.launch(), again.paces("network")), (Some(launch), Some(&[1.125, 1.0][..])));
        assert_eq!(Measurements::open(Some(dir.path()), "another card").launch(), None);
    }

    /// A file of an earlier format has times of launches by themselves, or over constants: none is taken, none is kept.
    #[test]
    fn times_measured_otherwise_are_not_mixed_with_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file_name("card"));
        let kernels = serde_json::json!({ "a": measured(1e-3, true) });
        let old = serde_json::json!({ "format": FORMAT - 1, "device": "card", "kernels": kernels, "paces": {} });
        std::fs::write(&path, old.to_string()).unwrap();
        let mut again = Measurements::open(Some(dir.path()), "card");
        assert_eq!((again.launch(), again.find("a")), (None, None));
        again.record_launch(LaunchTimes { alone: 4.5e-6, chained: 2.25e-6 });
        again.record("b".to_string(), measured(2e-3, true));
        again.save();
        let saved = Measurements::open(Some(dir.path()), "card");
        assert_eq!((saved.find("a"), saved.find("b")), (None, Some(&measured(2e-3, true))));
    }

    #[test]
    fn two_processes_keep_each_others_measurements() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Measurements::open(Some(dir.path()), "card");
        let (mut one, mut two) = (open(), open());
        one.record("a".to_string(), measured(1.0, true));
        two.record("b".to_string(), measured(2.0, true));
        one.save();
        two.save();
        assert!(open().find("a").is_some() && open().find("b").is_some());
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(file_name("card")), b"{\"format\": 1").unwrap();
        assert_eq!(Measurements::open(Some(dir.path()), "card").find("a"), None);
    }

    #[test]
    fn more_free_memory_asks_for_the_plans_that_did_not_fit() {
        let entry = measured(1.0, true);
        assert!(entry.holds(1 << 30) && !entry.holds(1 << 41));
        assert!(Measured { too_large: None, ..entry }.holds(u64::MAX));
    }
}
