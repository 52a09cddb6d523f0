//! `ubtrfs subvolume set-default`: sets the default subvolume.

use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use ubtrfs_format::ids::RootId;

use super::ask_for_subvolume;
use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::volume_access::changes::Changes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Choose the subvolume that is mounted if none is named
#[derive(Debug, clap::Args)]
pub(crate) struct SetDefault {
    /// The subvolume, or its id before the image
    #[arg(value_name = "IMAGE:/SUBVOLUME|ID")]
    subvolume: Location,
    /// Path in the volume, if the subvolume is given by its id
    #[arg(value_name = "IMAGE:/PATH")]
    location: Option<Location>,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl SetDefault {
    pub(crate) fn run(&self, _: &mut Console) -> anyhow::Result<()> {
        let mut changes = Changes::new(&self.volume);
        let location = self.location.as_ref().unwrap_or(&self.subvolume);
        let target = changes.open(location)?;
        let id = match self.location {
            Some(_) => self.id()?,
            None => target.subvolume(&self.subvolume)?,
        };
        if let Some(rights) = target.rights() {
            rights.administer().context(NOT_SET)?;
        }
        let volume = &target.volume;
        let subvolume = volume.subvolume_by_id(id.0);
        let done = subvolume.and_then(|of| volume.set_default_subvolume(&of));
        done.reason().context(NOT_SET)?;
        changes.commit()
    }

    /// Returns the id that was given in place of a location.
    fn id(&self) -> anyhow::Result<RootId> {
        let text = match self.subvolume.session() {
            Some(_) => self.subvolume.file_name().unwrap_or_default(),
            None => self.subvolume.image.as_os_str().as_bytes(),
        };
        let id = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        // As in the kernel, 0 means the top level.
        match id {
            Some(0) => Ok(RootId::FS_TREE),
            Some(id) => Ok(RootId(id)),
            None => anyhow::bail!("'{}' is not the id of a subvolume", Escaped(text)),
        }
    }
}

const NOT_SET: &str = "Could not set default subvolume";

impl ByIoctls for SetDefault {
    fn run_by_ioctls(&self, _: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let (asked, id) = match &self.location {
            Some(location) => (Asked::open(location)?, self.id()?),
            None => {
                let asked = ask_for_subvolume(&self.subvolume)?;
                let id = asked.root_id()?;
                (asked, id)
            }
        };
        asked.set_default(id).context(NOT_SET)
    }
}
