//! Creating, deleting and changing subvolumes.

use std::os::fd::AsRawFd;

use rustix::io::Errno;
use ubtrfs::Uuid;
use ubtrfs_format::ids::{InodeNr, RootId, Transid};
use ubtrfs_fuse::ioctl_args::{
    self as args, InoLookup, QgroupInherit, Received, SubvolInfo, VolArgs, VolArgsV2,
};
use zerocopy::native_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

use super::Asked;
use crate::arguments::qgroup_id::QgroupId;

/// Returns the bytes of a field before the first zero.
pub(crate) fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Writes a name and a zero to the start of a field.
fn put(field: &mut [u8], name: &[u8]) -> Result<(), Errno> {
    let place = field.get_mut(..=name.len()).ok_or(Errno::NAMETOOLONG)?;
    let (end, place) = place.split_last_mut().ok_or(Errno::NAMETOOLONG)?;
    place.copy_from_slice(name);
    *end = 0;
    Ok(())
}

fn named(name: &[u8]) -> Result<VolArgsV2, Errno> {
    let mut args = VolArgsV2::new_zeroed();
    put(&mut args.name, name)?;
    Ok(args)
}

/// The quota groups of a new subvolume.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// A `QgroupInherit` followed by the ids. Empty without quota groups.
    bytes: Vec<u8>,
}

impl Inherited {
    pub(crate) fn of(qgroups: &[QgroupId]) -> Inherited {
        if qgroups.is_empty() {
            return Inherited::default();
        }
        let mut head = QgroupInherit::new_zeroed();
        head.num_qgroups.set(qgroups.len() as u64);
        let mut bytes = head.as_bytes().to_vec();
        for id in qgroups {
            bytes.extend_from_slice(&id.0.to_ne_bytes());
        }
        Inherited { bytes }
    }

    /// Points an argument to the list, which must outlive it.
    fn put_into(&self, args: &mut VolArgsV2) {
        if !self.bytes.is_empty() {
            args.flags.set(args.flags.get() | args::QGROUP_INHERIT);
            args.inherit[0].set(self.bytes.len() as u64);
            args.inherit[1].set(self.bytes.as_ptr() as u64);
        }
    }
}

impl Asked {
    pub(crate) fn create_subvolume(&self, name: &[u8], qgroups: &Inherited) -> Result<(), Errno> {
        let mut args = named(name)?;
        qgroups.put_into(&mut args);
        self.ask::<{ args::SUBVOL_CREATE_V2 }, _>(&mut args)
    }

    pub(crate) fn snapshot(
        &self,
        source: &Asked,
        name: &[u8],
        read_only: bool,
        qgroups: &Inherited,
    ) -> Result<(), Errno> {
        let mut args = named(name)?;
        qgroups.put_into(&mut args);
        args.fd.set(source.0.as_raw_fd().into());
        if read_only {
            args.flags.set(args.flags.get() | args::RDONLY);
        }
        self.ask::<{ args::SNAP_CREATE_V2 }, _>(&mut args)
    }

    pub(crate) fn destroy(&self, name: &[u8]) -> Result<(), Errno> {
        let mut args = VolArgs::new_zeroed();
        put(&mut args.name, name)?;
        self.ask::<{ args::SNAP_DESTROY }, _>(&mut args)
    }

    pub(crate) fn destroy_by_id(&self, id: RootId) -> Result<(), Errno> {
        let mut args = VolArgsV2::new_zeroed();
        args.flags.set(args::SPEC_BY_ID);
        args.name[..8].copy_from_slice(id.0.as_bytes());
        self.ask::<{ args::SNAP_DESTROY_V2 }, _>(&mut args)
    }

    fn flags(&self) -> Result<u64, Errno> {
        let mut flags = U64::new(0);
        self.ask::<{ args::SUBVOL_GETFLAGS }, _>(&mut flags)?;
        Ok(flags.get())
    }

    /// Returns whether it is the root directory of a subvolume.
    pub(crate) fn is_subvolume(&self) -> Result<bool, Errno> {
        match self.flags() {
            Ok(_) => Ok(true),
            Err(Errno::INVAL) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn is_read_only(&self) -> Result<bool, Errno> {
        Ok(self.flags()? & args::RDONLY != 0)
    }

    pub(crate) fn set_read_only(&self, read_only: bool) -> Result<(), Errno> {
        let flags = self.flags()? & !args::RDONLY;
        let mut flags = U64::new(if read_only {
            flags | args::RDONLY
        } else {
            flags
        });
        self.ask::<{ args::SUBVOL_SETFLAGS }, _>(&mut flags)
    }

    /// Clears the received UUID of the subvolume.
    pub(crate) fn forget_received(&self) -> Result<(), Errno> {
        self.ask::<{ args::SET_RECEIVED_SUBVOL }, _>(&mut Received::new_zeroed())
    }

    /// Sets the received UUID and the sender's transaction of the subvolume.
    pub(crate) fn set_received(&self, uuid: &Uuid, transid: Transid) -> Result<(), Errno> {
        let mut received = Received::new_zeroed();
        received.uuid = uuid.0;
        received.stransid.set(transid.0);
        self.ask::<{ args::SET_RECEIVED_SUBVOL }, _>(&mut received)
    }

    /// Returns information about the subvolume that contains it.
    pub(crate) fn subvolume_info(&self) -> Result<SubvolInfo, Errno> {
        let mut info = SubvolInfo::new_zeroed();
        self.ask::<{ args::GET_SUBVOL_INFO }, _>(&mut info)?;
        Ok(info)
    }

    pub(crate) fn inode(&self) -> Result<InodeNr, Errno> {
        Ok(InodeNr(rustix::fs::fstat(&self.0)?.st_ino))
    }

    /// Returns the id of the subvolume that contains the file.
    pub(crate) fn root_id(&self) -> Result<RootId, Errno> {
        let mut lookup = InoLookup::new_zeroed();
        lookup.objectid.set(InodeNr::FIRST_FREE.0);
        self.ask::<{ args::INO_LOOKUP }, _>(&mut lookup)?;
        Ok(RootId(lookup.treeid.get()))
    }
}
