//! Byte ranges of a file, and bounded sets of them.

/// A byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    pub(super) fn new(offset: u64, len: u64) -> Self {
        Self {
            start: offset,
            end: offset.saturating_add(len),
        }
    }

    pub(super) fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns the bytes of this range from a buffer that begins at `offset` and contains it.
    pub(super) fn of(self, offset: u64, bytes: &[u8]) -> &[u8] {
        &bytes[(self.start - offset) as usize..(self.end - offset) as usize]
    }

    /// Returns the intersection, unless it is empty.
    pub(super) fn common(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Self { start, end })
    }

    /// Returns the range, extended at both ends to multiples of `unit`.
    pub(super) fn rounded(self, unit: u64) -> Self {
        Self {
            start: self.start / unit * unit,
            end: self.end.checked_next_multiple_of(unit).unwrap_or(u64::MAX),
        }
    }

    /// Returns the parts before and after another range.
    pub(super) fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let front = Self {
            start: self.start,
            end: self.end.min(other.start),
        };
        let behind = Self {
            start: self.start.max(other.end),
            end: self.end,
        };
        [front, behind]
            .into_iter()
            .filter(|part| part.start < part.end)
    }
}

/// A set of ranges. When it exceeds `MAX_SPANS` ranges, the two nearest to each other are merged. So the set may
/// contain more than was inserted, but never less.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Spans(Vec<Span>);

const MAX_SPANS: usize = 64;

impl Spans {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn insert(&mut self, span: Span) {
        if span.start >= span.end {
            return;
        }
        // Merges the range with all ranges that it touches or overlaps.
        let first = self.0.partition_point(|other| other.end < span.start);
        let behind = self.0.partition_point(|other| other.start <= span.end);
        let mut whole = span;
        for other in &self.0[first..behind] {
            whole.start = whole.start.min(other.start);
            whole.end = whole.end.max(other.end);
        }
        self.0.splice(first..behind, [whole]);
        // Merging the nearest two adds the fewest bytes that were never inserted.
        if self.0.len() > MAX_SPANS {
            let gap = |at: &usize| self.0[at + 1].start - self.0[*at].end;
            if let Some(nearest) = (0..self.0.len() - 1).min_by_key(gap) {
                self.0[nearest].end = self.0[nearest + 1].end;
                self.0.remove(nearest + 1);
            }
        }
    }

    /// Returns the parts of a range that the set contains, in ascending order.
    pub(super) fn common(&self, span: Span) -> impl Iterator<Item = Span> {
        // Ranges are sorted and disjoint, so the intersections are contiguous.
        let first = self.0.partition_point(|other| other.end <= span.start);
        self.0[first..]
            .iter()
            .map_while(move |other| other.common(span))
    }

    pub(super) fn overlaps(&self, span: Span) -> bool {
        self.common(span).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(ranges: &[(u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        for &(start, end) in ranges {
            spans.insert(Span { start, end });
        }
        spans
    }

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(
            spans(&[(10, 20), (30, 40), (20, 25)]),
            spans(&[(10, 25), (30, 40)])
        );
        assert_eq!(spans(&[(10, 20), (30, 40), (15, 35)]), spans(&[(10, 40)]));
        assert_eq!(spans(&[(5, 5)]), Spans::default());
    }

    #[test]
    fn a_set_contains_what_was_put_in_however_much_that_is() {
        let mut set = Spans::default();
        for number in (0..1000).rev() {
            set.insert(Span::new(number * 10, 1));
        }
        assert_eq!(set.0.len(), MAX_SPANS);
        assert!((0..1000).all(|number| set.overlaps(Span::new(number * 10, 1))));
        let whole = Span {
            start: 0,
            end: 9991,
        };
        assert!(
            set.common(whole)
                .all(|part| part.common(whole) == Some(part))
        );
        assert!(!set.overlaps(Span::new(9991, 10)));
    }

    #[test]
    fn common_parts_are_those_of_both() {
        let set = spans(&[(10, 20), (30, 40), (50, 60)]);
        let common: Vec<_> = set.common(Span { start: 15, end: 51 }).collect();
        let expected = [(15, 20), (30, 40), (50, 51)].map(|(start, end)| Span { start, end });
        assert_eq!(common, expected);
        assert!(!set.overlaps(Span { start: 20, end: 30 }));
    }

    #[test]
    fn a_range_is_rounded_to_whole_units_and_has_parts_around_another() {
        assert_eq!(Span::new(4097, 1).rounded(4096), Span::new(4096, 4096));
        let whole = Span::new(0, u64::MAX);
        assert_eq!(whole.rounded(4096), whole);
        let around = |span: Span, other| span.without(other).collect::<Vec<_>>();
        let span = Span { start: 10, end: 20 };
        assert_eq!(
            around(span, Span { start: 12, end: 15 }),
            [Span { start: 10, end: 12 }, Span { start: 15, end: 20 }]
        );
        assert_eq!(around(span, Span { start: 0, end: 30 }), []);
        assert_eq!(around(span, Span { start: 30, end: 40 }), [span]);
    }
}
