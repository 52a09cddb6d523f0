//! The ioctls of btrfs that FUSE can carry: those whose number covers the whole argument.
//!
//! An argument with a pointer or a list of variable length cannot pass, and fails with ENOTTY, as any unknown command.
//! These are TREE_SEARCH_V2, SPACE_INFO for more than the number of spaces (SPACE_LIST has those), LOGICAL_INO,
//! INO_PATHS, SEND, ENCODED_READ and ENCODED_WRITE, and quota groups to inherit. So are changes of devices, balance
//! and quotas.
//!
//! GET_SUBVOL_ROOTREF returns as many as fit along with EOVERFLOW, so that the caller can continue after them.
//!
//! Permission checks (`caller`) and errors match the kernel's btrfs. A command that changes names returns when
//! the kernel has dropped the old names, or after a timeout.
//!
//! Not here: flags of inodes (`flags`), the caller's descriptors (`descriptor`).

mod descriptor;
mod lookup;
mod scrub;
mod search;
mod subvolume;
mod volume;

use std::sync::Arc;

use ubtrfs_device::nonblocking;
use ubtrfs_fs::{FileId, FileKind, Volume};
use ubtrfs_fuse_server::request::{Context, Errno, IoctlAnswer, NodeId, Result};
use zerocopy::native_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) use self::descriptor::DeviceNumber;
use super::Adapter;
use super::errno::errno;
use super::source::Source;
use crate::caller::{Caller, Refused, Rights, caller_of};
use crate::ioctl_args as args;

/// One ioctl on a file.
struct Call<'a, S: Source> {
    adapter: &'a Adapter<S>,
    volume: &'a Arc<Volume>,
    file: FileId,
    context: &'a Context,
    caller: Caller,
}

impl<S: Source> Adapter<S> {
    /// Returns the caller, with the rights that the mount grants.
    pub(super) fn caller(&self, context: &Context) -> Caller {
        let caller = caller_of(context.pid, context.uid, context.gid);
        if self.is_fakeroot {
            caller.as_superuser()
        } else {
            caller
        }
    }

    pub(super) fn ioctl(
        &self,
        context: &Context,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<IoctlAnswer> {
        match self.flags_ioctl(node, command, input, out) {
            Some(outcome) => outcome.map(IoctlAnswer::of),
            None => self.btrfs_ioctl(context, node, command, input, out),
        }
    }

    fn btrfs_ioctl(
        &self,
        context: &Context,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<IoctlAnswer> {
        let volume = self.source.volume().ok_or(Errno::NOTTY)?;
        if !is_known(command) {
            return Err(Errno::NOTTY);
        }
        // Nearly all ioctls read or commit, and all are rare.
        if nonblocking::is_set() {
            return Err(Errno::WOULD_BLOCK);
        }
        let node = self.node(node)?;
        if node.is_empty_subvolume_dir() {
            return Err(Errno::NOTTY);
        }
        let call = Call {
            adapter: self,
            volume,
            file: node.id,
            context,
            caller: self.caller(context),
        };
        if depends_on_owners(command) && call.is_asked_through_idmapped() {
            return Err(Errno::OPNOTSUPP);
        }
        if command == args::GET_SUBVOL_ROOTREF {
            let (found, is_all) = call.subvol_rootref(read(input)?)?;
            // REQ-5: one of the ioctls that fail with an answer.
            return Ok(IoctlAnswer {
                len_bytes: write(out, &found)?,
                error: (!is_all).then_some(Errno::OVERFLOW),
            });
        }
        if command == args::SCRUB {
            let (counts, is_cancelled) = call.scrub(read(input)?)?;
            // REQ-5: the counts of a cancelled scrub are needed to resume it.
            return Ok(IoctlAnswer {
                len_bytes: write(out, &counts)?,
                error: is_cancelled.then_some(rustix::io::Errno::CANCELED.into()),
            });
        }
        call.answer(command, input, out).map(IoctlAnswer::of)
    }
}

fn is_known(command: u32) -> bool {
    use args::*;
    matches!(
        command,
        SNAP_CREATE
            | SYNC
            | SUBVOL_CREATE
            | SNAP_DESTROY
            | TREE_SEARCH
            | INO_LOOKUP
            | DEFAULT_SUBVOL
            | SPACE_INFO
            | SPACE_LIST
            | WAIT_SYNC
            | SNAP_CREATE_V2
            | START_SYNC
            | SUBVOL_CREATE_V2
            | SUBVOL_GETFLAGS
            | SUBVOL_SETFLAGS
            | SCRUB
            | SCRUB_CANCEL
            | SCRUB_PROGRESS
            | DEV_INFO
            | FS_INFO
            | SET_RECEIVED_SUBVOL
            | GET_FSLABEL
            | SET_FSLABEL
            | GET_DEV_STATS
            | GET_FEATURES
            | GET_SUPPORTED_FEATURES
            | GET_SUBVOL_INFO
            | GET_SUBVOL_ROOTREF
            | INO_LOOKUP_USER
            | SNAP_DESTROY_V2
            | FITRIM
    )
}

/// Returns whether an ioctl depends on file owners or creates files. FUSE does not pass the mapping of an idmapped
/// mount.
fn depends_on_owners(command: u32) -> bool {
    use args::*;
    matches!(
        command,
        SNAP_CREATE
            | SUBVOL_CREATE
            | SNAP_DESTROY
            | SNAP_CREATE_V2
            | SUBVOL_CREATE_V2
            | SUBVOL_SETFLAGS
            | SET_RECEIVED_SUBVOL
            | INO_LOOKUP_USER
            | SNAP_DESTROY_V2
    )
}

impl<S: Source> Call<'_, S> {
    fn answer(&self, command: u32, input: &[u8], out: &mut [u8]) -> Result<usize> {
        match command {
            args::SUBVOL_CREATE => {
                let args: args::VolArgs = read(input)?;
                self.create(name_of(&args.name)?)
            }
            args::SUBVOL_CREATE_V2 => {
                let args: args::VolArgsV2 = read(input)?;
                flags_of(&args, args::RDONLY)?;
                self.create(name_of(&args.name)?)
            }
            args::SNAP_CREATE => {
                let args: args::VolArgs = read(input)?;
                self.snapshot(name_of(&args.name)?, args.fd.get(), false)
            }
            args::SNAP_CREATE_V2 => {
                let args: args::VolArgsV2 = read(input)?;
                let flags = flags_of(&args, args::RDONLY)?;
                self.snapshot(name_of(&args.name)?, args.fd.get(), flags != 0)
            }
            args::SNAP_DESTROY => {
                let args: args::VolArgs = read(input)?;
                self.destroy(victim_of(&args.name)?)
            }
            args::SNAP_DESTROY_V2 => {
                let args: args::VolArgsV2 = read(input)?;
                match flags_of(&args, args::SPEC_BY_ID)? {
                    0 => self.destroy(victim_of(&args.name)?),
                    _ => self.destroy_by_id(read::<U64>(&args.name)?.get()),
                }
            }
            args::SUBVOL_GETFLAGS => write(out, &U64::new(self.flags()?)),
            args::SUBVOL_SETFLAGS => self.set_flags(read::<U64>(input)?.get()),
            args::DEFAULT_SUBVOL => self.set_default(read::<U64>(input)?.get()),
            args::SET_RECEIVED_SUBVOL => write(out, &self.set_received(read(input)?)?),
            args::INO_LOOKUP => write(out, &self.ino_lookup(read(input)?)?),
            args::INO_LOOKUP_USER => write(out, &self.ino_lookup_user(read(input)?)?),
            args::GET_SUBVOL_INFO => write(out, &self.subvol_info()?),
            args::TREE_SEARCH => write(out, &self.tree_search(read(input)?)?),
            args::FS_INFO => write(out, &self.fs_info()),
            args::DEV_INFO => write(out, &self.dev_info(read(input)?)?),
            args::SPACE_INFO => write(out, &self.space_info(read(input)?)?),
            args::SPACE_LIST => write(out, &self.space_list()?),
            args::SCRUB_CANCEL => self.cancel_scrub(),
            args::SCRUB_PROGRESS => write(out, &self.scrub_progress(read(input)?)?),
            args::SYNC => self.sync(),
            args::START_SYNC => write(out, &U64::new(self.start_sync()?)),
            args::WAIT_SYNC => self.wait_sync(read::<U64>(input)?.get()),
            args::GET_FSLABEL => write(out, &self.label()),
            args::SET_FSLABEL => self.set_label(&read(input)?),
            args::GET_DEV_STATS => write(out, &self.dev_stats(read(input)?)?),
            args::GET_FEATURES => write(out, &self.features()),
            args::GET_SUPPORTED_FEATURES => write(out, &volume::supported_features()),
            args::FITRIM => write(out, &self.trim(read(input)?)?),
            _ => Err(Errno::NOTTY),
        }
    }

    fn rights(&self) -> Rights<'_> {
        Rights {
            caller: &self.caller,
            volume: self.volume,
            user_subvol_rm_allowed: self.adapter.live.user_subvol_rm_allowed(),
        }
    }

    fn administer(&self) -> Result<()> {
        self.rights().administer().map_err(refused)
    }

    /// Checks that the volume can be written.
    fn must_be_writable(&self) -> Result<()> {
        if self.volume.is_writable() && !self.adapter.device.is_read_only() {
            Ok(())
        } else {
            Err(Errno::ROFS)
        }
    }

    /// Checks that the caller's mount allows changes.
    fn writing(&self) -> Result<()> {
        self.must_be_writable()?;
        if self.is_asked_through_read_only() {
            Err(Errno::ROFS)
        } else {
            Ok(())
        }
    }

    fn must_be_dir(&self) -> Result<()> {
        match self.volume.attr(self.file).map_err(errno)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Checks that the file is the root directory of its subvolume.
    fn must_be_root_dir(&self) -> Result<()> {
        if self.volume.root_dir(self.file.root).map_err(errno)? == self.file {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    }
}

fn refused(refused: Refused) -> Errno {
    match refused {
        Refused::Access => Errno::ACCES,
        Refused::Permission => Errno::PERM,
        Refused::ReadOnly => Errno::ROFS,
        Refused::Volume(error) => errno(error),
    }
}

fn read<T: FromBytes>(bytes: &[u8]) -> Result<T> {
    let (value, _) = T::read_from_prefix(bytes).map_err(|_| Errno::INVAL)?;
    Ok(value)
}

fn write<T: IntoBytes + Immutable>(out: &mut [u8], value: &T) -> Result<usize> {
    value.write_to_prefix(out).map_err(|_| Errno::INVAL)?;
    Ok(size_of::<T>())
}

/// Returns the bytes before the first zero, if they can be the name of a new file.
fn name_of(field: &[u8]) -> Result<&[u8]> {
    let end = field.iter().position(|&byte| byte == 0);
    let name = &field[..end.ok_or(Errno::NAMETOOLONG)?];
    match name {
        b"." | b".." => Err(Errno::EXIST),
        name if name.contains(&b'/') => Err(Errno::INVAL),
        // No such name can be looked up.
        b"" => Err(Errno::ACCES),
        name => Ok(name),
    }
}

/// Returns the bytes before the first zero, if they can be the name of a file to delete.
fn victim_of(field: &[u8]) -> Result<&[u8]> {
    match name_of(field) {
        Err(Errno::EXIST) if field.starts_with(b"..") => Err(Errno::INVAL),
        // No such name can be looked up, either.
        Err(Errno::EXIST) => Err(Errno::ACCES),
        name => name,
    }
}

fn flags_of(args: &args::VolArgsV2, known: u64) -> Result<u64> {
    match args.flags.get() {
        flags if flags & !known == 0 => Ok(flags),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Copies bytes and a zero to the start of a field.
fn put(field: &mut [u8], bytes: &[u8]) -> Result<()> {
    let room = field.len().checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    if bytes.len() > room {
        return Err(Errno::NAMETOOLONG);
    }
    field[..bytes.len()].copy_from_slice(bytes);
    field[bytes.len()] = 0;
    Ok(())
}
