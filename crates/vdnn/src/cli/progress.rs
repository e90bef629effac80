//! How training is shown: a bar on a terminal, plain lines elsewhere. All of it on standard error.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;
use vdnn_train::{LossScale, StepResult};

/// `loss scale 32768, 3 steps skipped`.
pub fn in_words(LossScale { scale, skipped_steps }: LossScale) -> String {
    let steps = if skipped_steps == 1 { "step" } else { "steps" };
    format!("loss scale {scale}, {skipped_steps} {steps} skipped")
}

/// How fast a step went.
pub struct Shown {
    /// Images a second.
    pub images_per_second: f64,
    /// Seconds of the step that were spent on waiting for its successor's batch.
    pub waited: f64,
}

/// Shows the steps of one epoch.
pub struct Progress {
    bar: Option<ProgressBar>,
    epoch: u64,
    n_batches: u64,
    quiet: bool,
}

impl Progress {
    /// Starts showing an epoch of `n_batches` batches. `quiet` shows nothing at all.
    pub fn start(epoch: u64, n_batches: u64, at: u64, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(n_batches).with_position(at);
            if let Ok(style) = ProgressStyle::with_template("epoch {prefix} {bar:30} {pos}/{len}  {msg}  {eta}") {
                bar.set_style(style);
            }
            bar.set_prefix((epoch + 1).to_string());
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Progress { bar, epoch, n_batches, quiet }
    }

    /// Shows one step.
    pub fn step(&self, batch: u64, result: &StepResult, shown: Shown, line: bool) {
        let Shown { images_per_second, waited } = shown;
        let scaled = result.loss_scale.map_or(String::new(), |now| format!("  {}", in_words(now)));
        let skipped = if result.skipped { "  step skipped: gradients overflow f16" } else { "" };
        let data = format!("data {:.1} ms", waited * 1e3);
        let message = format!("loss {:.4}  {images_per_second:.0} images/s  {data}{scaled}{skipped}", result.loss);
        match &self.bar {
            Some(bar) => {
                bar.set_position(batch);
                bar.set_message(message);
            }
            None if line && !self.quiet => eprintln!("epoch {} {batch}/{}  {message}", self.epoch + 1, self.n_batches),
            None => {}
        }
    }

    /// Ends the epoch with a line.
    pub fn finish(self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if !self.quiet {
            eprintln!("{text}");
        }
    }
}
