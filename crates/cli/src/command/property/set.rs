//! `ubtrfs property set`: properties changed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use ubtrfs_engine::{FileId, FileTime, ReceivedFrom, XattrMode};
use ubtrfs_format::ids::Transid;
use ubtrfs_format::uuid::Uuid;

use super::{COMPRESSION, Kind, Name, Object};
use crate::changes::{Changes, Target};
use crate::command::filesystem::label::set_label;
use crate::location::{Location, VolumeOptions};
use crate::quoting::Escaped;

/// Set a property
///
/// ro takes true or false, compression an algorithm (zlib, lzo, zstd, with a level after a colon), none or nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    #[arg(value_name = "IMAGE:/PATH")]
    location: Location,
    /// ro, label or compression
    #[arg(value_name = "NAME")]
    name: String,
    #[arg(value_name = "VALUE")]
    value: OsString,
    /// What is meant, if the path may be several
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// Make a subvolume that was received writable; it forgets what it was received from
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Set {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let name = Name::parse(&self.name)?;
        let mut changes = Changes::new(&self.volume);
        let target = changes.open(&self.location)?;
        let object = Object::new(&target.volume, target.root, &self.location, self.kind)?;
        object.check(name)?;
        let value = self.value.as_bytes();
        match name {
            Name::Ro => self.set_read_only(&target, &object, value)?,
            Name::Label => set_label(&target, value)?,
            Name::Compression => self
                .set_compression(&target, object.id, value)
                .with_context(|| format!("failed to set compression for '{}'", self.location))?,
        }
        changes.commit()
    }

    fn set_compression(&self, target: &Target, id: FileId, value: &[u8]) -> anyhow::Result<()> {
        if let Some(rights) = target.rights() {
            rights.write_to(id)?;
        }
        let volume = &target.volume;
        volume.set_xattr(id, COMPRESSION, value, XattrMode::Any)?;
        target.file_changed(id);
        Ok(())
    }

    fn set_read_only(
        &self,
        target: &Target,
        object: &Object<'_>,
        value: &[u8],
    ) -> anyhow::Result<()> {
        let read_only = match value {
            b"true" => true,
            b"false" => false,
            _ => bail!("invalid value for property: {}", Escaped(value)),
        };
        let id = object.id.root;
        let received = object.volume.subvolume_tree(id)?.item().received_uuid;
        let refused = || format!("failed to set flags of '{}'", self.location);
        if let Some(rights) = target.rights() {
            rights.own(object.id).with_context(refused)?;
        }
        if !read_only && object.is_read_only()? && !received.is_nil() {
            if !self.force {
                bail!(
                    "cannot flip ro->rw with received_uuid set, use force option -f if you really \
                     want unset the read-only status: the received UUID is used for incremental \
                     send, consider making a snapshot instead"
                );
            }
            let volume = object.volume;
            volume.set_read_only(id, false).with_context(refused)?;
            let nothing = ReceivedFrom {
                uuid: Uuid::default(),
                transid: Transid(0),
                time: FileTime::default(),
            };
            volume.set_received(id, &nothing).with_context(refused)?;
            return Ok(());
        }
        if read_only && !object.is_read_only()? {
            // What comes later is refused.
            target.write_back(id).with_context(refused)?;
        }
        let set = object.volume.set_read_only(id, read_only);
        set.with_context(refused)
    }
}
