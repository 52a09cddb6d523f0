//! `ubtrfs property set`: changes properties.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use rustix::fs::{XattrFlags, setxattr};
use ubtrfs::{File, Uuid, XattrMode};

use super::{COMPRESSION, InMount, Kind, Name, Object, Stored};
use crate::command::filesystem::label::{ask_to_set_label, set_label};
use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::volume_access::changes::{Changes, Target, id_of, id_of_file};
use crate::volume_access::ioctls::ByIoctls;
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

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
    /// New value
    #[arg(value_name = "VALUE")]
    value: OsString,
    /// The kind of object, if the path may mean several
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// Make a received subvolume writable, which clears its received UUID
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
        let object = Stored::new(&target.volume, &target.files, &self.location, self.kind)?;
        object.check(name)?;
        let value = self.value.as_bytes();
        match name {
            Name::Ro => self.set_read_only(&target, &object, value)?,
            Name::Label => set_label(&target, value)?,
            Name::Compression => self
                .set_compression(&target, &object.file, value)
                .with_context(|| self.not_compressed())?,
        }
        changes.commit()
    }

    fn set_compression(&self, target: &Target, file: &File, value: &[u8]) -> anyhow::Result<()> {
        let metadata = file.metadata().reason()?;
        if let Some(rights) = target.rights() {
            rights.write_to(id_of_file(&metadata))?;
        }
        file.set_xattr(COMPRESSION, value, XattrMode::Any)
            .reason()?;
        target.file_changed(&metadata);
        Ok(())
    }

    fn set_read_only(&self, target: &Target, object: &Stored, value: &[u8]) -> anyhow::Result<()> {
        let read_only = switch(value)?;
        let is_received = object.subvolume.info().reason()?.received_uuid.is_some();
        let refused = || self.not_switched();
        let root = target.for_user(object.subvolume.open_dir("/").reason()?);
        if let Some(rights) = target.rights() {
            rights.own(id_of(&root)).with_context(refused)?;
        }
        if !read_only && object.is_read_only()? && is_received {
            self.must_be_forced()?;
            let set = root.set_read_only(false);
            let forgotten = set.and_then(|()| root.forget_received());
            return forgotten.reason().with_context(refused);
        }
        if read_only && !object.is_read_only()? {
            // Later writes are refused, so write the buffered data back first.
            let written = target.write_back(&object.subvolume);
            written.with_context(refused)?;
        }
        let set = root.set_read_only(read_only).reason();
        set.with_context(refused)
    }
}

impl Set {
    fn not_compressed(&self) -> String {
        format!("failed to set compression for '{}'", self.location)
    }

    fn not_switched(&self) -> String {
        format!("failed to set flags of '{}'", self.location)
    }

    fn must_be_forced(&self) -> anyhow::Result<()> {
        if !self.force {
            bail!(
                "cannot flip ro->rw with received_uuid set, use force option -f if you really want \
                 unset the read-only status: the received UUID is used for incremental send, \
                 consider making a snapshot instead"
            );
        }
        Ok(())
    }

    fn ask_for_read_only(&self, object: &InMount, value: &[u8]) -> anyhow::Result<()> {
        let read_only = switch(value)?;
        let asked = object.ask()?;
        let refused = || self.not_switched();
        let is_made_writable = !read_only && asked.is_read_only()?;
        let is_received = is_made_writable && {
            let info = asked.subvolume_info().with_context(refused)?;
            !Uuid(info.received_uuid).is_nil()
        };
        if is_received {
            self.must_be_forced()?;
        }
        asked.set_read_only(read_only).with_context(refused)?;
        if is_received {
            asked.forget_received().with_context(refused)
        } else {
            Ok(())
        }
    }
}

impl ByIoctls for Set {
    fn run_by_ioctls(&self, _: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let name = Name::parse(&self.name)?;
        let object = InMount::new(&self.location, self.kind)?;
        object.check(name)?;
        let value = self.value.as_bytes();
        match name {
            Name::Ro => self.ask_for_read_only(&object, value),
            Name::Label => ask_to_set_label(&object.ask()?, value),
            Name::Compression => setxattr(&object.path, COMPRESSION, value, XattrFlags::empty())
                .with_context(|| self.not_compressed()),
        }
    }
}

/// Parses the value of the property ro.
fn switch(value: &[u8]) -> anyhow::Result<bool> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => bail!("invalid value for property: {}", Escaped(value)),
    }
}
