//! Ends of the listings of one directory, by a tag that stands in the offsets of each.

/// Tags are 1 to this.
const TAGS: u8 = 127;

/// A listing that is overtaken by `TAGS` others, each with another end, gets the end of the last.
#[derive(Debug, Default)]
pub(super) struct ListingEnds {
    /// That of tag 1 first.
    ends: Vec<u32>,
    /// The tag given last; 0: none.
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

    /// Gives an end to a tag that is not known, or not any more.
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
