//! How are durations spread? Counts in buckets whose width grows with the value, so that a percentile is right to 1 %
//! and recording costs an addition.

/// Each power of two is cut into this many buckets.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = (64 - STEP_BITS as usize) * STEPS as usize + STEPS as usize;

/// Durations in nanoseconds.
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
            max_ns: 0,
        }
    }

    pub fn record(&mut self, value_ns: u64) {
        self.counts[bucket(value_ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// The value below which `share` (0 to 1) of what was recorded lies, in microseconds; 0 for nothing.
    pub fn percentile_us(&self, share: f64) -> f64 {
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle_ns(index) / 1000.0;
            }
        }
        0.0
    }

    /// The largest that was recorded, in microseconds; 0 for nothing.
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1000.0
    }
}

fn bucket(value_ns: u64) -> usize {
    if value_ns < STEPS {
        return value_ns as usize;
    }
    let shift = value_ns.ilog2() - STEP_BITS;
    let step = (value_ns >> shift) - STEPS;
    (u64::from(shift + 1) * STEPS + step) as usize
}

fn middle_ns(index: usize) -> f64 {
    let index = index as u64;
    if index < STEPS {
        return index as f64;
    }
    let shift = index / STEPS - 1;
    let low = (STEPS + index % STEPS) << shift;
    low as f64 + (1_u64 << shift) as f64 / 2.0
}
