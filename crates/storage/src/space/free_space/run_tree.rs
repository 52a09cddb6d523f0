//! The search for the first free run of a given length, over summaries of the regions.
//!
//! A segment tree: the root has the longest run of the group, and a search follows one path. Runs that cross the border
//! between regions count as one.

/// A summary of the free runs in a range, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    pub(super) len: u64,
    /// The length of the run at the start, 0 if the first unit is used.
    pub(super) prefix: u64,
    pub(super) suffix: u64,
    pub(super) longest: u64,
    pub(super) count: u64,
}

impl Runs {
    /// Creates the summary of `len` units with nothing free.
    pub(super) fn none(len: u64) -> Runs {
        Runs {
            len,
            ..Runs::default()
        }
    }

    /// Adds a run. Runs must be added in ascending order.
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
            prefix: if whole(self) {
                self.len + right.prefix
            } else {
                self.prefix
            },
            suffix: if whole(right) {
                self.suffix + right.len
            } else {
                right.suffix
            },
            longest: self
                .longest
                .max(right.longest)
                .max(self.suffix + right.prefix),
            count: self.count + right.count - u64::from(self.suffix > 0 && right.prefix > 0),
        }
    }
}

/// The position of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The run is within this region.
    Within(usize),
    /// The run begins `before` units before the start of this region.
    Across { region: usize, before: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct RunTree {
    /// The root is at 1, the children of `n` at `2n` and `2n + 1`, the regions from `first_leaf` on.
    nodes: Vec<Runs>,
    first_leaf: usize,
}

impl RunTree {
    /// Creates a tree of regions with these lengths and nothing free.
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

    /// Replaces the summaries of the regions from `first` on.
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

    /// Recomputes all nodes above the regions `first..=last`.
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
    /// The run may begin up to `before` units earlier, if the caller knows that these units before the region are free.
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
            // Go to the next subtree on the right: climb while this is a right child.
            while node % 2 == 1 {
                if node == 1 {
                    return None;
                }
                node /= 2;
            }
            node += 1;
        }
    }

    /// Searches the subtree of a node for a run of `want`. After a failure, `before` is the length of the free run at
    /// the end of the searched range.
    fn search(&self, node: usize, before: &mut u64, want: u64) -> Option<Found> {
        let runs = self.nodes[node];
        // The free units before the node and those at its start form one run.
        if *before + runs.prefix >= want {
            return Some(Found::Across {
                region: self.leftmost(node),
                before: *before,
            });
        }
        if runs.longest < want {
            // No run fits here. Carry the trailing run over to the next subtree.
            *before = if runs.longest == runs.len {
                *before + runs.len
            } else {
                runs.suffix
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
