//! Finds the first run of a length among regions, each known only by its runs at the ends and its longest.
//!
//! A segment tree: the root knows the longest run of all, and a search goes down one path. Runs that cross
//! from region to region count as one.

/// A summary of the free runs in a stretch, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    pub(super) len: u64,
    /// The run at the start, 0 if it does not start free.
    pub(super) prefix: u64,
    pub(super) suffix: u64,
    pub(super) longest: u64,
    pub(super) count: u64,
}

impl Runs {
    /// Creates the runs of a stretch of `len` without anything free.
    pub(super) fn none(len: u64) -> Runs {
        Runs {
            len,
            ..Runs::default()
        }
    }

    /// Counts a run; runs come in ascending order.
    pub(super) fn push(&mut self, from: u64, to: u64) {
        let run = to - from;
        if from == 0 {
            self.prefix = run;
        }
        if to == self.len {
            self.suffix = run;
        }
        self.longest = self.longest.max(run);
        self.count += 1;
    }

    fn join(self, right: Runs) -> Runs {
        let whole = |runs: Runs| runs.longest == runs.len;
        Runs {
            len: self.len + right.len,
            prefix: match whole(self) {
                true => self.len + right.prefix,
                false => self.prefix,
            },
            suffix: match whole(right) {
                true => self.suffix + right.len,
                false => right.suffix,
            },
            longest: self
                .longest
                .max(right.longest)
                .max(self.suffix + right.prefix),
            count: self.count + right.count - u64::from(self.suffix > 0 && right.prefix > 0),
        }
    }
}

/// Where a run was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Within this region: one of its own runs is long enough.
    Within(usize),
    /// It begins `before` units ahead of this region's start.
    Across { region: usize, before: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct RunTree {
    /// The root is at 1, the children of `n` at `2n` and `2n + 1`, the regions from `first_leaf` on.
    nodes: Vec<Runs>,
    first_leaf: usize,
}

impl RunTree {
    /// Creates a tree of regions of these lengths with nothing free.
    pub(super) fn new(lens: impl ExactSizeIterator<Item = u64>) -> RunTree {
        let first_leaf = lens.len().next_power_of_two();
        let mut nodes = vec![Runs::default(); 2 * first_leaf];
        for (node, len) in nodes[first_leaf..].iter_mut().zip(lens) {
            *node = Runs::none(len);
        }
        let mut tree = RunTree { nodes, first_leaf };
        tree.rejoin(0, first_leaf - 1);
        tree
    }

    /// Returns the length of the longest run of all.
    pub(super) fn longest(&self) -> u64 {
        self.nodes[1].longest
    }

    pub(super) fn count(&self) -> u64 {
        self.nodes[1].count
    }

    pub(super) fn region(&self, region: usize) -> Runs {
        self.nodes[self.first_leaf + region]
    }

    /// Replaces what is known of the regions from `first` on.
    pub(super) fn set(&mut self, first: usize, runs: impl Iterator<Item = Runs>) {
        let mut next = first;
        for runs in runs {
            self.nodes[self.first_leaf + next] = runs;
            next += 1;
        }
        if next > first {
            self.rejoin(first, next - 1);
        }
    }

    /// Brings all nodes above the regions `first..=last` up to date.
    fn rejoin(&mut self, first: usize, last: usize) {
        let (mut low, mut high) = (self.first_leaf + first, self.first_leaf + last);
        while low > 1 {
            (low, high) = (low / 2, high / 2);
            for node in low..=high {
                self.nodes[node] = self.nodes[2 * node].join(self.nodes[2 * node + 1]);
            }
        }
    }

    /// Finds the first run of at least `want` units that begins in `region` or later.
    ///
    /// It may begin earlier by `before`, if that many units ahead of the region are free.
    pub(super) fn first_fit(&self, region: usize, before: u64, want: u64) -> Option<Found> {
        let mut before = before;
        let mut node = self.first_leaf + region;
        if node >= self.nodes.len() {
            return None;
        }
        loop {
            if let Some(found) = self.search(node, &mut before, want) {
                return Some(found);
            }
            while node % 2 == 1 {
                if node == 1 {
                    return None;
                }
                node /= 2;
            }
            node += 1;
        }
    }

    /// Searches below a node for a run of `want`. `before` becomes the length of the run at the end of what was
    /// searched in vain.
    fn search(&self, node: usize, before: &mut u64, want: u64) -> Option<Found> {
        let runs = self.nodes[node];
        if *before + runs.prefix >= want {
            return Some(Found::Across {
                region: self.leftmost(node),
                before: *before,
            });
        }
        if runs.longest < want {
            *before = match runs.longest == runs.len {
                true => *before + runs.len,
                false => runs.suffix,
            };
            return None;
        }
        if node >= self.first_leaf {
            return Some(Found::Within(node - self.first_leaf));
        }
        self.search(2 * node, before, want)
            .or_else(|| self.search(2 * node + 1, before, want))
    }

    /// Returns the first region below a node.
    fn leftmost(&self, node: usize) -> usize {
        let mut node = node;
        while node < self.first_leaf {
            node *= 2;
        }
        node - self.first_leaf
    }
}
