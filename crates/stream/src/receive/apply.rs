//! The semantics of each command: its fields are checked, and the target executes it.

use rustix::io::Errno;
use ubtrfs_format::limits::{MAX_FILE_BYTES, MAX_TARGET_BYTES};
use ubtrfs_format::maker::Marks;
use ubtrfs_fs::DeviceNumber;

use super::encoded::Encoded;
use super::error::CommandFault;
use super::path::{TreePath, subvolume_name};
use super::target::{CloneSource, NewFile, Sent, SetAttributes, TargetError};
use super::{Current, Receiver, TYPE, report};
use crate::format::Command;

const CHAR_DEVICE: u64 = 0o020_000;
const BLOCK_DEVICE: u64 = 0o060_000;

type Applied = Result<(), CommandFault>;

impl Receiver<'_> {
    /// Executes one command.
    pub(super) fn apply(&mut self, command: &Command<'_>) -> Applied {
        match *command {
            Command::Subvol {
                path,
                uuid,
                ctransid,
            } => return self.begin(command, path, Sent { uuid, ctransid }, None),
            Command::Snapshot {
                path,
                uuid,
                ctransid,
                clone_uuid,
                clone_ctransid,
            } => {
                let parent = Sent {
                    uuid: clone_uuid,
                    ctransid: clone_ctransid,
                };
                return self.begin(command, path, Sent { uuid, ctransid }, Some(parent));
            }
            Command::End => return self.finish(),
            // A hidden subvolume of DSM is an ordinary one here.
            Command::SubvolumeFlags { .. } | Command::Unknown { .. } => return Ok(()),
            _ => {}
        }
        let current = self.current.as_ref().ok_or(CommandFault::NoSubvolume)?;
        if !current.is_begun {
            return Err(CommandFault::NotBegun);
        }
        report(&mut self.watch, &current.name, command);
        match *command {
            Command::Write { .. } | Command::Clone { .. } | Command::EncodedWrite { .. } => {
                self.apply_data(command)
            }
            Command::Truncate { path, size } => {
                within_file(size, 0)?;
                Ok(self.target.truncate(TreePath::below_root(path)?, size)?)
            }
            Command::Fallocate {
                path,
                mode,
                offset,
                len,
            } => {
                within_file(offset, len)?;
                let path = TreePath::below_root(path)?;
                Ok(self.target.fallocate(path, mode, offset, len)?)
            }
            Command::SetXattr { .. }
            | Command::RemoveXattr { .. }
            | Command::Chmod { .. }
            | Command::Chown { .. }
            | Command::Utimes { .. } => self.apply_attributes(command),
            // Ignored as in btrfs-progs: there is no data, and the receiver chooses its own inode flags.
            Command::UpdateExtent { path, .. } | Command::Fileattr { path, .. } => {
                TreePath::new(path)?;
                Ok(())
            }
            _ => self.apply_names(command),
        }
    }

    fn begin(
        &mut self,
        command: &Command<'_>,
        name: &[u8],
        sent: Sent,
        parent: Option<Sent>,
    ) -> Applied {
        if let Some(left) = self.current.take().filter(|left| left.is_begun) {
            let _ = self.watch.finished(&left.name, false);
        }
        let name = subvolume_name(name)?;
        self.current = Some(Current {
            name: name.to_vec(),
            sent,
            is_sound: true,
            is_begun: false,
        });
        report(&mut self.watch, name, command);
        match parent {
            None => self.target.create_subvolume(name)?,
            Some(parent) => self.target.create_snapshot(name, &parent)?,
        }
        if let Some(current) = &mut self.current {
            current.is_begun = true;
        }
        Ok(())
    }

    /// Finishes the current subvolume, unless some of its commands failed.
    pub(super) fn finish(&mut self) -> Applied {
        let Some(current) = &self.current else {
            return Ok(());
        };
        if current.is_begun && current.is_sound {
            self.target.finish(&current.sent)?;
            let _ = self.watch.finished(&current.name, true);
            self.current = None;
        }
        Ok(())
    }

    fn apply_names(&mut self, command: &Command<'_>) -> Applied {
        let target = &mut self.target;
        let at = TreePath::below_root;
        match *command {
            Command::Mkfile { path, .. } => target.create(at(path)?, &NewFile::File)?,
            Command::Mkdir { path, .. } => target.create(at(path)?, &NewFile::Directory)?,
            Command::Mkfifo { path, .. } => target.create(at(path)?, &NewFile::Fifo)?,
            Command::Mksock { path, .. } => target.create(at(path)?, &NewFile::Socket)?,
            Command::Mknod {
                path, rdev, mode, ..
            } => target.create(at(path)?, &new_device(rdev, mode)?)?,
            Command::Symlink {
                path, target: to, ..
            } => {
                if to.is_empty() || to.len() > MAX_TARGET_BYTES {
                    return Err(CommandFault::LinkTarget(to.len()));
                }
                target.create(at(path)?, &NewFile::Symlink(to))?;
            }
            Command::Rename { path, to } => target.rename(at(path)?, at(to)?)?,
            Command::Link { path, existing } => target.link(at(path)?, at(existing)?)?,
            Command::Unlink { path } => target.unlink(at(path)?)?,
            Command::Rmdir { path } => target.rmdir(at(path)?)?,
            _ => {}
        }
        Ok(())
    }

    fn apply_attributes(&mut self, command: &Command<'_>) -> Applied {
        let target = &mut self.target;
        match *command {
            Command::SetXattr { path, name, value } => {
                let set = target.set_xattr(TreePath::new(path)?, name, value);
                self.unless_left_out(name, set)?;
            }
            Command::RemoveXattr { path, name } => {
                let removed = target.remove_xattr(TreePath::new(path)?, name);
                self.unless_left_out(name, removed)?;
            }
            _ => {
                if let Some((path, set)) = SetAttributes::of(command)? {
                    target.set_attributes(path, &set)?;
                }
            }
        }
        Ok(())
    }

    /// Counts an attribute that the target cannot have instead of failing, unless the options refuse that.
    fn unless_left_out(&mut self, name: &[u8], done: Result<(), TargetError>) -> Applied {
        match done {
            Err(error) if self.leaves_out(name, &error) => {
                self.left_out.add(name);
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// Returns whether only systems of another maker have the attribute.
    fn leaves_out(&self, name: &[u8], error: &TargetError) -> bool {
        !self.options.strict_attributes
            && !Marks::of_xattr(name).is_empty()
            && matches!(error.errno(), Errno::OPNOTSUPP | Errno::NODATA)
    }

    fn apply_data(&mut self, command: &Command<'_>) -> Applied {
        match *command {
            Command::Write { path, offset, data } => {
                within_file(offset, data.len() as u64)?;
                let path = TreePath::below_root(path)?;
                Ok(self.target.write(path, offset, data)?)
            }
            Command::Clone {
                offset,
                len,
                path,
                clone_uuid,
                clone_ctransid,
                clone_path,
                clone_offset,
            } => {
                within_file(offset, len)?;
                within_file(clone_offset, len)?;
                let sent = Sent {
                    uuid: clone_uuid,
                    ctransid: clone_ctransid,
                };
                let own = self.current.as_ref().map(|current| current.sent.uuid);
                let from = CloneSource {
                    subvolume: (own != Some(sent.uuid)).then_some(sent),
                    path: TreePath::below_root(clone_path)?,
                    offset: clone_offset,
                };
                let path = TreePath::below_root(path)?;
                Ok(self.target.clone_range(path, offset, len, &from)?)
            }
            Command::EncodedWrite {
                path,
                offset,
                unencoded_file_len: file_len,
                unencoded_len,
                unencoded_offset,
                compression,
                encryption,
                data,
            } => {
                let encoded = Encoded {
                    file_len,
                    unencoded_len,
                    unencoded_offset,
                    compression,
                    encryption: encryption.unwrap_or(0),
                    data,
                };
                self.write_encoded(TreePath::below_root(path)?, offset, &encoded)
            }
            _ => Ok(()),
        }
    }

    fn write_encoded(&mut self, path: TreePath<'_>, offset: u64, encoded: &Encoded<'_>) -> Applied {
        within_file(offset, encoded.file_len)?;
        let (extent, plain) = self.decoder.decode(encoded)?;
        let may_store =
            !self.options.force_decompress && extent.is_natural(offset, self.target.sectorsize()?);
        let is_stored = may_store && self.target.write_encoded(path, offset, &extent)?;
        if !is_stored {
            self.target.write(path, offset, plain)?;
        }
        Ok(())
    }
}

fn within_file(offset: u64, len: u64) -> Applied {
    match offset.checked_add(len) {
        Some(end) if end <= MAX_FILE_BYTES => Ok(()),
        _ => Err(CommandFault::FileRange { offset, len }),
    }
}

fn new_device(rdev: u64, mode: u64) -> Result<NewFile<'static>, CommandFault> {
    // The kernel's 32-bit encoding: 8 bits of the minor number, 12 of the major number, then 12 more of the minor
    // number.
    let rdev = u32::try_from(rdev).map_err(|_| CommandFault::Device(rdev))?;
    let device = DeviceNumber {
        major: rdev >> 8 & 0xfff,
        minor: rdev & 0xff | rdev >> 12 & 0xf_ff00,
    };
    match mode & TYPE {
        CHAR_DEVICE => Ok(NewFile::CharDevice(device)),
        BLOCK_DEVICE => Ok(NewFile::BlockDevice(device)),
        _ => Err(CommandFault::Mode {
            what: "type of a device",
            value: mode,
        }),
    }
}
