//! Means over batches of different sizes.

/// A mean of batch means, each weighted by its number of samples, so that a short last batch counts for what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightedMean {
    sum: f64,
    count: u64,
}

impl WeightedMean {
    /// Adds a batch's mean over `count` samples.
    pub fn add(&mut self, mean: f64, count: u64) {
        self.sum += mean * count as f64;
        self.count += count;
    }

    /// The mean over all samples; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case B20: losses of eight ones and two sixes in batches of 4, 4, 2 average 2, not the mean of means 2.67.
    #[test]
    fn b20_short_last_batch_counts_for_its_samples() {
        let mut mean = WeightedMean::default();
        for (loss, count) in [(1.0, 4), (1.0, 4), (6.0, 2)] {
            mean.add(loss, count);
        }
        assert_eq!((mean.mean(), mean.count()), (Some(2.0), 10));
        assert_eq!(WeightedMean::default().mean(), None);
    }
}
