//! The order of data and parity within the rows of RAID4, RAID5 and RAID6.
//!
//! Source: `raid5_compute_sector` and `raid6_d0` of Linux. The layouts of DDF arrays are not here.

/// How parity moves from row to row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rotation {
    /// From the last member to the first.
    Left,
    /// From the first member to the last.
    Right,
    /// Parity is on the first member.
    First,
    /// Parity is on the last member.
    Last,
}

/// The layout of an array with parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParityLayout {
    members: usize,
    parities: usize,
    rotation: Rotation,
    /// Whether the data of a row begins after its parity, as opposed to at the first member.
    is_symmetric: bool,
    /// Whether Q is always on the last member. Such arrays were RAID5 before.
    has_last_q: bool,
}

/// One row of chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The members with data, in logical order.
    pub(crate) data: Vec<usize>,
    /// The members in the order of the computation of parity: data, P, and with two parities Q.
    pub(crate) slots: Vec<usize>,
}

impl ParityLayout {
    /// Decodes the layout field of a superblock for `level` 4, 5 or 6. Returns None if it is unknown.
    pub(crate) fn decode(level: i32, layout: u32, members: usize) -> Option<ParityLayout> {
        let parities = if level == 6 { 2 } else { 1 };
        let (number, has_last_q) = match (level, layout) {
            (4, _) => (5, false),
            (6, 16..=20) => (layout - 16, true),
            _ => (layout, false),
        };
        let (rotation, is_symmetric) = match number {
            0 => (Rotation::Left, false),
            1 => (Rotation::Right, false),
            2 => (Rotation::Left, true),
            3 => (Rotation::Right, true),
            4 => (Rotation::First, false),
            5 if !has_last_q => (Rotation::Last, false),
            _ => return None,
        };
        (members > parities).then_some(ParityLayout {
            members,
            parities,
            rotation,
            is_symmetric,
            has_last_q,
        })
    }

    pub(crate) fn parities(&self) -> usize {
        self.parities
    }

    /// Returns the number of data chunks in a row.
    pub(crate) fn data(&self) -> usize {
        self.members - self.parities
    }

    /// Returns the order of the members in a row.
    pub(crate) fn row(&self, row: u64) -> Row {
        // Members among which P rotates.
        let rotating = self.members - usize::from(self.has_last_q);
        let turn = (row % rotating as u64) as usize;
        let p = match self.rotation {
            Rotation::Left => rotating - 1 - turn,
            Rotation::Right => turn,
            Rotation::First => 0,
            Rotation::Last => self.data(),
        };
        let q = match self.parities {
            1 => None,
            _ if self.has_last_q => Some(self.members - 1),
            _ => Some((p + 1) % self.members),
        };
        let is_data = |member: &usize| *member != p && Some(*member) != q;
        let from = |first: usize, count: usize| -> Vec<usize> {
            let members = (0..count).map(|step| (first + step) % count);
            members.filter(is_data).collect()
        };
        let data = if self.is_symmetric {
            from(p + 1, rotating)
        } else {
            from(0, self.members)
        };
        // Q weighs the members from the one after itself on.
        let mut slots = match q {
            Some(q) => from(q + 1, self.members),
            None => data.clone(),
        };
        slots.push(p);
        slots.extend(q);
        Row { data, slots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws rows as `mdadm` does: numbers are data chunks of the row, in logical order.
    fn drawn(level: i32, layout: u32, members: usize, rows: u64) -> Vec<String> {
        let layout = ParityLayout::decode(level, layout, members).expect("a known layout");
        let draw = |row| {
            let row = layout.row(row);
            let mut text = vec!['?'; members];
            for (number, &member) in row.data.iter().enumerate() {
                text[member] = char::from_digit(number as u32, 10).expect("a digit");
            }
            text[row.slots[layout.data()]] = 'P';
            if let Some(&q) = row.slots.get(layout.data() + 1) {
                text[q] = 'Q';
            }
            text.into_iter().collect()
        };
        (0..rows).map(draw).collect()
    }

    #[test]
    fn raid5_rows_are_those_of_linux() {
        assert_eq!(drawn(5, 0, 4, 4), ["012P", "01P2", "0P12", "P012"]);
        assert_eq!(drawn(5, 1, 4, 4), ["P012", "0P12", "01P2", "012P"]);
        assert_eq!(drawn(5, 2, 4, 5), ["012P", "12P0", "2P01", "P012", "012P"]);
        assert_eq!(drawn(5, 3, 4, 4), ["P012", "2P01", "12P0", "012P"]);
        assert_eq!(drawn(5, 4, 4, 2), ["P012", "P012"]);
        assert_eq!(drawn(5, 5, 4, 2), ["012P", "012P"]);
        assert_eq!(drawn(4, 0, 4, 2), ["012P", "012P"]);
    }

    #[test]
    fn raid6_rows_are_those_of_linux() {
        assert_eq!(drawn(6, 0, 5, 3), ["Q012P", "012PQ", "01PQ2"]);
        assert_eq!(
            drawn(6, 1, 5, 5),
            ["PQ012", "0PQ12", "01PQ2", "012PQ", "Q012P"]
        );
        assert_eq!(drawn(6, 2, 5, 3), ["Q012P", "012PQ", "12PQ0"]);
        assert_eq!(drawn(6, 3, 5, 3), ["PQ012", "2PQ01", "12PQ0"]);
        assert_eq!(drawn(6, 4, 5, 1), ["PQ012"]);
        assert_eq!(drawn(6, 5, 5, 1), ["012PQ"]);
        assert_eq!(drawn(6, 18, 5, 4), ["012PQ", "12P0Q", "2P01Q", "P012Q"]);
        assert_eq!(drawn(6, 16, 5, 2), ["012PQ", "01P2Q"]);
    }

    #[test]
    fn q_weighs_members_from_the_one_after_it() {
        let asymmetric = ParityLayout::decode(6, 0, 5).expect("a known layout");
        // 01PQ2: the last member is the first of Q.
        assert_eq!(asymmetric.row(2).slots, [4, 0, 1, 2, 3]);
        let last_q = ParityLayout::decode(6, 18, 5).expect("a known layout");
        assert_eq!(last_q.row(1).slots, [0, 1, 3, 2, 4]);
    }
}
