//! Locations of data: the extents of a file, and the files that use an address.

#![allow(unsafe_code)]

use std::ops::ControlFlow;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_fs::inspect::ExtentUser;
use ubtrfs_fuse::ioctl_args::{self as args, Container, Fiemap, FiemapExtent, LogicalIno};
use zerocopy::{FromBytes, FromZeros};

use super::Asked;

/// The size of the first list, and of the longest that the kernel supports.
const LIST_BYTES: [usize; 2] = [64 << 10, 16 << 20];

impl Asked {
    /// Calls `each` with the extents of a file, in file order.
    pub(crate) fn extents(&self, each: &mut dyn FnMut(&FiemapExtent)) -> Result<(), Errno> {
        let mut start = 0;
        loop {
            let mut map = Box::new(Fiemap::new_zeroed());
            map.start.set(start);
            map.length.set(u64::MAX);
            map.extent_count.set(map.extents.len() as u32);
            self.ask::<{ args::FIEMAP }, _>(&mut *map)?;
            let returned = map.mapped_extents.get() as usize;
            let returned = map.extents.iter().take(returned);
            let mut flow = ControlFlow::Break(());
            for extent in returned {
                each(extent);
                start = extent.logical.get().saturating_add(extent.length.get());
                flow = match extent.flags.get() & args::FIEMAP_LAST {
                    0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                };
            }
            if flow.is_break() {
                return Ok(());
            }
        }
    }

    /// Returns the users of a logical address, or of any part of its extent.
    pub(crate) fn extent_users(
        &self,
        logical: u64,
        ignore_offset: bool,
    ) -> Result<Vec<ExtentUser>, Errno> {
        let mut found = None;
        for bytes in LIST_BYTES {
            let mut list = vec![0u64; bytes / size_of::<u64>()];
            let mut head = LogicalIno::new_zeroed();
            head.logical.set(logical);
            head.size.set(bytes as u64);
            if ignore_offset {
                head.flags.set(args::IGNORE_OFFSET);
            }
            match self.ask_for_list::<{ args::LOGICAL_INO_V2 }>(&mut head, &mut list) {
                // Kernels before 4.15.
                Err(Errno::NOTTY) if !ignore_offset => {
                    self.ask_for_list::<{ args::LOGICAL_INO }>(&mut head, &mut list)?;
                }
                asked => asked?,
            }
            let (users, missed) = users_in(&list);
            found = Some(users);
            if missed == 0 {
                break;
            }
        }
        Ok(found.unwrap_or_default())
    }

    /// Runs the ioctl with a pointer to `list`.
    fn ask_for_list<const NUMBER: Opcode>(
        &self,
        head: &mut LogicalIno,
        list: &mut [u64],
    ) -> Result<(), Errno> {
        head.size.set(size_of_val(list) as u64);
        head.inodes
            .set(list.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: the numbers belong to ioctls whose argument is LogicalIno. The argument has the address and length
        // of the list's buffer, and the kernel writes only into it. Any bytes are valid numbers.
        unsafe { ioctl(&self.0, Updater::<NUMBER, LogicalIno>::new(head)) }
    }
}

/// Returns the users in a list, and the number of those that did not fit.
fn users_in(list: &[u64]) -> (Vec<ExtentUser>, u32) {
    let (head, values) = list.split_at(size_of::<Container>() / size_of::<u64>());
    let head = zerocopy::IntoBytes::as_bytes(head);
    let Ok(head) = Container::read_from_bytes(head) else {
        return (Vec::new(), 0);
    };
    let returned = values.iter().take(head.elem_cnt.get() as usize);
    let returned: Vec<u64> = returned.copied().collect();
    let users = returned.chunks_exact(3).map(|user| ExtentUser {
        ino: InodeNr(user[0]),
        offset: user[1],
        root: RootId(user[2]),
    });
    (users.collect(), head.elem_missed.get())
}
