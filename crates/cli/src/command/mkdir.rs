//! `ubtrfs mkdir`: new directories.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, bail};
use ubtrfs::DirBuilder;
use ubtrfs_engine::{Error, FileId, FileKind, NewInode, SetAttr};

use crate::arguments::mode_change::ModeChange;
use crate::presentation::console::Console;
use crate::presentation::permissions::umask;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Make directories
#[derive(Debug, clap::Args)]
pub(crate) struct Mkdir {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Make the directories above as well, and accept those that exist
    #[arg(short, long)]
    parents: bool,
    /// The mode, as for chmod
    #[arg(short, long, value_name = "MODE")]
    mode: Option<ModeChange>,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// What a new directory has before the umask.
const EVERYTHING: u32 = 0o777;
/// What a directory made on the way has in any case, so that something can be made in it.
const FOR_OWNER: u32 = 0o300;

impl Mkdir {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, _| match self.parents {
                true => self.make_all(target, location),
                false => self.make(target, location),
            },
        )
    }

    fn make(&self, target: &Target, location: &Location) -> anyhow::Result<()> {
        let named = target.named(location)?;
        let refused = || format!("cannot make directory '{location}'");
        let umask = umask();
        let builder = DirBuilder::new().mode(EVERYTHING).umask(umask);
        let made = target.files.create_dir_with(&named.path, &builder);
        made.reason().with_context(refused)?;
        if let Some(mode) = &self.mode {
            let mode = Permissions::from_mode(mode.apply(EVERYTHING, true, umask));
            let set = target.files.set_permissions(&named.path, mode);
            set.reason().with_context(refused)?;
        }
        Ok(())
    }

    fn make_in(&self, target: &Target, dir: FileId, name: &[u8]) -> anyhow::Result<FileId> {
        let umask = umask();
        let made = make_directory(target, dir, name, umask)?;
        if let Some(mode) = &self.mode {
            let mode = Some(mode.apply(EVERYTHING, true, umask));
            let set = SetAttr {
                mode,
                ..SetAttr::default()
            };
            target.engine().set_attr(made, &set)?;
        }
        Ok(made)
    }

    fn make_all(&self, target: &Target, location: &Location) -> anyhow::Result<()> {
        let umask = umask();
        make_path(
            target,
            &location.path,
            &|dir, name, is_last| match is_last {
                true => self.make_in(target, dir, name),
                false => make_directory(target, dir, name, umask & !FOR_OWNER),
            },
        )
        .with_context(|| format!("cannot make directory '{location}'"))?;
        Ok(())
    }
}

pub(super) fn make_directory(
    target: &Target,
    dir: FileId,
    name: &[u8],
    umask: u32,
) -> anyhow::Result<FileId> {
    if let Some(rights) = target.rights() {
        rights.add_to(dir)?;
    }
    let maker = target.maker();
    let new = NewInode {
        umask,
        uid: maker.uid,
        gid: maker.gid,
        ..NewInode::directory(EVERYTHING)
    };
    let made = target.engine().create(dir, name, &new)?;
    target.entry_changed(dir, name)?;
    Ok(made)
}

/// Makes a directory in another, the last of a path or not.
pub(super) type Make<'a> = dyn Fn(FileId, &[u8], bool) -> anyhow::Result<FileId> + 'a;

/// Enters the directories of a path one by one; `make` makes those that are missing, told which is the last.
pub(super) fn make_path(target: &Target, path: &[u8], make: &Make<'_>) -> anyhow::Result<FileId> {
    let mut names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
        .peekable();
    let mut at = target.root;
    while let Some(name) = names.next() {
        let is_last = names.peek().is_none();
        at = match target.engine().resolve_following(at, name) {
            Ok(found) => found,
            Err(Error::NotFound) if target.engine().lookup(at, name)?.is_none() => {
                make(at, name, is_last)?
            }
            Err(error) => return Err(error.into()),
        };
        if target.engine().attr(at)?.kind != FileKind::Directory {
            bail!(Error::NotADirectory(at));
        }
    }
    Ok(at)
}
