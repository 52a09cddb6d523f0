//! Ends of the listings of one directory, by the tag in the offsets of each.

/// The largest tag; the smallest is 1.
const TAGS: u8 = 127;

/// The recent ends. A listing that is overtaken by `TAGS` others with different ends gets the end of the newest.
#[derive(Debug, Default)]
pub(super) struct ListingEnds {
    /// Indexed by tag, from 1.
    ends: Vec<u32>,
    /// The tag assigned last; 0 means none.
    last: u8,
}

impl ListingEnds {
    pub(super) const fn new() -> Self {
        Self {
            ends: Vec::new(),
            last: 0,
        }
    }

    /// Begins a listing and returns its tag. Listings with one end share a tag, so an unchanged directory needs one.
    pub(super) fn begin(&mut self, end: u32) -> u8 {
        if self.last == 0 || self.end(self.last) != Some(end) {
            self.last = self.last % TAGS + 1;
            self.set(self.last, end);
        }
        self.last
    }

    pub(super) fn end(&self, tag: u8) -> Option<u32> {
        let at = usize::from(tag).checked_sub(1)?;
        self.ends.get(at).copied()
    }

    /// Assigns an end to an unknown or forgotten tag.
    pub(super) fn set(&mut self, tag: u8, end: u32) {
        let len = usize::from(tag.clamp(1, TAGS));
        if self.ends.len() < len {
            self.ends.resize(len, end);
        }
        self.ends[len - 1] = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listing_keeps_its_end() {
        let mut ends = ListingEnds::new();
        let tags = [5, 5, 7, 9, 5].map(|end| ends.begin(end));
        assert_eq!(tags, [1, 1, 2, 3, 4]);
        assert_eq!(tags.map(|tag| ends.end(tag)), [5, 5, 7, 9, 5].map(Some));
        assert_eq!(ends.end(0), None);
        assert_eq!(ends.end(5), None);
    }

    #[test]
    fn tags_come_again_after_the_last() {
        let mut ends = ListingEnds::new();
        for end in 0..u32::from(TAGS) {
            assert_eq!(u32::from(ends.begin(end)), end + 1);
        }
        assert_eq!(ends.begin(1000), 1);
        assert_eq!(ends.end(1), Some(1000));
        assert_eq!(ends.end(2), Some(1));
    }

    #[test]
    fn a_tag_of_before_gets_an_end() {
        let mut ends = ListingEnds::new();
        ends.set(TAGS, 8);
        assert_eq!(ends.end(TAGS), Some(8));
        assert_eq!(ends.begin(9), 1);
        assert_eq!(ends.end(1), Some(9));
        assert_eq!(ends.end(TAGS), Some(8));
    }
}
