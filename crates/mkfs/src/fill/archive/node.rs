//! A member of an archive between reading and the walk, and its format in a temporary file.

use ubtrfs_format::item::{
    DeviceNumber, FileKind, FileTime, InodeFlags, PreservedAttributes, Times,
};

use ubtrfs_spill::PageRecord;

use crate::fill::source::Attributes;

/// The index of a node.
pub(super) type NodeId = u32;

pub(super) const NONE: NodeId = NodeId::MAX;
const NOWHERE: u64 = u64::MAX;

/// The position of a node's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// None: directories, empty files, devices, or not stored yet.
    Nothing,
    /// Data in the archive itself.
    InArchive { at: u64 },
    /// A link's target in the log.
    Target { at: u64, len: u32 },
    /// Inline contents in the log.
    Inline { at: u64 },
    /// Extents, by the index of the first.
    Placed {
        first: u64,
        count: u32,
        is_incompressible: bool,
    },
}

/// The children of a directory, as a range in the sorted order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Children {
    pub(super) first: u32,
    pub(super) count: u32,
    /// The total length of their names.
    pub(super) name_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) parent: NodeId,
    /// Offset and length of the name.
    pub(super) name: (u64, u16),
    /// Whether a later member has replaced it.
    pub(super) is_replaced: bool,
    /// The node with its inode, if this is another name.
    pub(super) link: Option<NodeId>,
    /// The number of names, if any of them is a hard link.
    pub(super) names: u32,
    pub(super) file: PreservedAttributes,
    pub(super) flags: InodeFlags,
    /// The offset in the log.
    pub(super) xattrs_at: Option<u64>,
    /// Offset in the log and length of the sparse map.
    pub(super) parts: Option<(u64, u32)>,
    pub(super) size: u64,
    pub(super) stored: Stored,
    /// The offset of its data in the temporary file, if it must be placed again.
    pub(super) aside_at: Option<u64>,
    /// For inodes with several names: the subvolume where the walk last found one.
    pub(super) met_in: NodeId,
    pub(super) children: Children,
}

impl Node {
    pub(super) fn new(parent: NodeId, name: (u64, u16)) -> Node {
        Node {
            parent,
            name,
            is_replaced: false,
            link: None,
            names: 0,
            file: PreservedAttributes::default(),
            flags: InodeFlags::empty(),
            xattrs_at: None,
            parts: None,
            size: 0,
            stored: Stored::Nothing,
            aside_at: None,
            met_in: NONE,
            children: Children::default(),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.link.is_none() && FileKind::from_mode(self.file.mode) == Some(FileKind::Directory)
    }

    pub(super) fn is_regular(&self) -> bool {
        FileKind::from_mode(self.file.mode) == Some(FileKind::Regular)
    }

    /// Returns the attributes without the extended ones.
    pub(super) fn attributes(&self) -> Attributes {
        Attributes {
            file: self.file,
            xattrs: Vec::new(),
            flags: self.flags,
        }
    }
}

impl Stored {
    /// Returns the kind and its numbers.
    fn fields(self) -> [u64; 4] {
        match self {
            Stored::Nothing => [0; 4],
            Stored::InArchive { at } => [1, at, 0, 0],
            Stored::Target { at, len } => [2, at, len.into(), 0],
            Stored::Inline { at } => [3, at, 0, 0],
            Stored::Placed {
                first,
                count,
                is_incompressible,
            } => [4, first, count.into(), is_incompressible.into()],
        }
    }

    fn of([kind, at, count, flag]: [u64; 4]) -> Stored {
        match kind {
            1 => Stored::InArchive { at },
            2 => Stored::Target {
                at,
                len: count as u32,
            },
            3 => Stored::Inline { at },
            4 => Stored::Placed {
                first: at,
                count: count as u32,
                is_incompressible: flag != 0,
            },
            _ => Stored::Nothing,
        }
    }
}

const FIELDS: usize = 27;

/// A node is stored as a sequence of numbers.
impl PageRecord for Node {
    const BYTES: usize = FIELDS * 8;

    fn write(&self, bytes: &mut [u8]) {
        let (parts_at, parts) = self.parts.unwrap_or((NOWHERE, 0));
        let PreservedAttributes {
            mode,
            uid,
            gid,
            device,
            times:
                Times {
                    access,
                    modification,
                    change,
                },
        } = self.file;
        let [kind, at, count, flag] = self.stored.fields();
        let fields: [u64; FIELDS] = [
            self.parent.into(),
            self.name.0,
            self.name.1.into(),
            self.is_replaced.into(),
            self.link.map_or(NOWHERE, u64::from),
            self.names.into(),
            u64::from(mode) << 32 | device.to_inode(),
            u64::from(uid) << 32 | u64::from(gid),
            access.sec.cast_unsigned(),
            modification.sec.cast_unsigned(),
            change.sec.cast_unsigned(),
            u64::from(access.nsec) << 32 | u64::from(modification.nsec),
            change.nsec.into(),
            self.flags.bits(),
            self.xattrs_at.unwrap_or(NOWHERE),
            parts_at,
            parts.into(),
            self.size,
            kind,
            at,
            count,
            flag,
            self.aside_at.unwrap_or(NOWHERE),
            self.met_in.into(),
            self.children.first.into(),
            self.children.count.into(),
            self.children.name_bytes,
        ];
        for (place, field) in bytes.as_chunks_mut().0.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
    }

    fn read(bytes: &[u8]) -> Node {
        let mut fields = [0; FIELDS];
        for (field, &place) in fields.iter_mut().zip(bytes.as_chunks().0) {
            *field = u64::from_le_bytes(place);
        }
        let place = |number: usize| Some(fields[number]).filter(|&at| at != NOWHERE);
        let [high, low] = [32, 0].map(|shift| move |field: u64| (field >> shift) as u32);
        let time = |sec: u64, nsec| FileTime {
            sec: sec.cast_signed(),
            nsec,
        };
        Node {
            parent: fields[0] as u32,
            name: (fields[1], fields[2] as u16),
            is_replaced: fields[3] != 0,
            link: place(4).map(|link| link as u32),
            names: fields[5] as u32,
            file: PreservedAttributes {
                mode: high(fields[6]),
                uid: high(fields[7]),
                gid: low(fields[7]),
                device: DeviceNumber::from_inode(low(fields[6]).into()),
                times: Times {
                    access: time(fields[8], high(fields[11])),
                    modification: time(fields[9], low(fields[11])),
                    change: time(fields[10], low(fields[12])),
                },
            },
            flags: InodeFlags::from_bits_retain(fields[13]),
            xattrs_at: place(14),
            parts: place(15).map(|at| (at, fields[16] as u32)),
            size: fields[17],
            stored: Stored::of([fields[18], fields[19], fields[20], fields[21]]),
            aside_at: place(22),
            met_in: fields[23] as u32,
            children: Children {
                first: fields[24] as u32,
                count: fields[25] as u32,
                name_bytes: fields[26],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_comes_back_as_it_was() {
        let time = |sec| FileTime {
            sec,
            nsec: sec.unsigned_abs() as u32,
        };
        let plain = Node::new(7, (1 << 40, 255));
        let full = Node {
            is_replaced: true,
            link: Some(0),
            names: 3,
            file: PreservedAttributes {
                mode: 0o100_644,
                uid: 1,
                gid: u32::MAX,
                device: DeviceNumber { major: 1, minor: 3 },
                times: Times {
                    access: time(-1),
                    modification: time(2),
                    change: time(1 << 33),
                },
            },
            flags: InodeFlags::NODATACOW,
            xattrs_at: Some(0),
            parts: Some((5, 6)),
            size: u64::MAX,
            aside_at: Some(1 << 50),
            met_in: 8,
            children: Children {
                first: 1,
                count: 2,
                name_bytes: 3,
            },
            ..plain
        };
        let stored = [
            Stored::Nothing,
            Stored::InArchive { at: 1 },
            Stored::Target { at: 2, len: 3 },
            Stored::Inline { at: 4 },
            Stored::Placed {
                first: 5,
                count: 6,
                is_incompressible: true,
            },
        ];
        for stored in stored {
            for node in [plain, full] {
                let node = Node { stored, ..node };
                let mut bytes = [0xff; Node::BYTES];
                node.write(&mut bytes);
                assert_eq!(Node::read(&bytes), node);
            }
        }
    }
}
