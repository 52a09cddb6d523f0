//! The volumes that a command changes. Each is opened once, and committed at the end of the command.
//!
//! A user who may write the image is root within its volumes. Permissions are not checked there, and new
//! files belong to root by default. A killed command leaves the last commit. In a mount, the caller has the
//! same rights as with the kernel's btrfs (`Target::rights`), and the mount commits.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::io::Errno;
use ubtrfs::{
    Caller, Dir, DirBuilder, DirEntry, File, Metadata, OpenOptions, Subvolume, SubvolumePlace,
    Volume, WalkOptions,
};
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_fs::FileId;
use ubtrfs_fuse::caller::Rights;

use crate::presentation::console::Console;
use crate::presentation::permissions::umask;
use crate::presentation::quoting::Escaped;
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{NameIn, Named};
use crate::volume_access::reason::{Reason, Reasoned};
use crate::volume_access::session::Session;

/// The permission bits of a new file before the umask.
pub(crate) const NEW_FILE_MODE: u32 = 0o666;
/// The permission bits of a new directory before the umask.
const NEW_DIR_MODE: u32 = 0o777;

/// A volume that is open for writing.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) volume: Volume,
    /// The files below the directory displayed as "/", by path.
    pub(crate) files: Subvolume,
    session: Option<Arc<Session>>,
}

impl Target {
    /// Returns the rights of the caller, or None if they are unlimited.
    pub(crate) fn rights(&self) -> Option<Rights<'_>> {
        self.session.as_ref()?.rights()
    }

    /// Returns the user whose rights the library checks, or None if everything is allowed.
    pub(crate) fn caller(&self) -> Option<Caller> {
        let rights = self.rights()?;
        let allowed = rights.user_subvol_rm_allowed;
        Some(Caller::of_engine(rights.caller.clone(), allowed))
    }

    /// Opens a directory with the rights of the user who runs the command.
    pub(crate) fn open_dir(&self, path: &Path) -> ubtrfs::Result<Dir> {
        self.files.open_dir(path).map(|dir| self.for_user(dir))
    }

    /// Limits a directory to the rights of the user who runs the command.
    pub(crate) fn for_user(&self, dir: Dir) -> Dir {
        match self.caller() {
            Some(caller) => dir.with_caller(&caller),
            None => dir,
        }
    }

    /// Returns the builder for new directories.
    pub(crate) fn new_dir(&self) -> DirBuilder {
        DirBuilder::new().mode(NEW_DIR_MODE).umask(umask())
    }

    /// Returns the last name of a path, with its opened parent directory.
    pub(crate) fn name_in(&self, location: &Location) -> anyhow::Result<NameIn> {
        NameIn::of(&location.path, |dir| self.open_dir(dir))
            .with_context(|| format!("cannot access '{location}'"))
    }

    /// Opens the directory at a path, if it exists.
    pub(crate) fn find_dir(&self, location: &Location) -> Result<Option<Dir>, Reason> {
        match self.open_dir(location.path_within()).reason() {
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Returns whether the mount shows this subvolume.
    pub(crate) fn is_mounted(&self, subvolume: RootId) -> bool {
        let mount = self.session.as_ref().and_then(|session| session.mount());
        mount.is_some() && self.files.id() == subvolume.0
    }

    /// Returns the channel for notifying a mount of changes.
    pub(crate) fn mount_changes(&self) -> Option<&ubtrfs_fuse::Changes> {
        self.session.as_ref()?.mount()?.served.changes.as_ref()
    }

    /// Notifies a mount that an entry has changed, and makes the change durable if the mount requires it.
    pub(crate) fn entry_changed(&self, dir: &Dir, name: &[u8]) -> Result<(), Reason> {
        self.notify_entry(id_of(dir), name);
        if self.must_sync_directories() {
            dir.sync_all().reason()
        } else {
            Ok(())
        }
    }

    fn notify_entry(&self, dir: FileId, name: &[u8]) {
        let Some(changes) = self.mount_changes() else {
            return;
        };
        changes.entry(dir, name);
        // The kernel takes the directory's lock for this. A concurrent listing from before the change is
        // cached when it returns.
        changes.wait();
        // A name that the kernel did not know is not in its cached listing either.
        changes.contents(dir);
        changes.wait();
    }

    fn must_sync_directories(&self) -> bool {
        let mount = self.session.as_ref().and_then(|session| session.mount());
        mount.is_some_and(|mount| mount.served.live.dirsync())
    }

    /// Notifies a mount that a subvolume with the root directory `root` was deleted, and makes that durable
    /// if the mount requires it.
    pub(crate) fn subvolume_removed(
        &self,
        place: &SubvolumePlace,
        root: &Dir,
    ) -> Result<(), Reason> {
        let dir = FileId {
            root: RootId(place.subvolume_id),
            ino: InodeNr(place.ino),
        };
        let name = place.name.as_bytes();
        if let Some(changes) = self.mount_changes() {
            changes.removed(dir, name, id_of(root));
        }
        self.notify_entry(dir, name);
        if self.must_sync_directories() {
            // A log of the directory cannot record the deletion of a subvolume.
            self.volume.sync().reason()
        } else {
            Ok(())
        }
    }

    /// Notifies a mount that a file's attributes have changed.
    pub(crate) fn file_changed(&self, file: &Metadata) {
        if let Some(changes) = self.mount_changes() {
            changes.attributes(id_of_file(file));
            changes.wait();
        }
    }

    /// Makes a mount's kernel write back its dirty pages of a subvolume.
    pub(crate) fn write_back(&self, subvolume: &Subvolume) -> anyhow::Result<()> {
        match self.session.as_ref().and_then(|session| session.mount()) {
            Some(mount) => mount.write_back(Some(RootId(subvolume.id()))),
            None => Ok(()),
        }
    }

    /// Returns the subvolume whose root directory is at the path.
    pub(crate) fn find_subvolume(&self, location: &Location) -> anyhow::Result<Subvolume> {
        match self.files.subvolume(location.path_within()).reason() {
            Err(error) if error.errno() == Errno::INVAL => {
                bail!("'{location}' is not a subvolume")
            }
            found => found.with_context(|| format!("cannot access '{location}'")),
        }
    }

    /// Returns the id of the subvolume whose root directory is at the path.
    pub(crate) fn subvolume(&self, location: &Location) -> anyhow::Result<RootId> {
        Ok(RootId(self.find_subvolume(location)?.id()))
    }

    /// Changes everything below a directory, and reports failures. Returns only an error that ends the
    /// command.
    pub(crate) fn each_below(
        &self,
        top: &Location,
        console: &mut Console,
        change: &mut dyn FnMut(&DirEntry) -> ubtrfs::Result<()>,
    ) -> Result<(), Reason> {
        for entry in self
            .files
            .walk(top.path_within(), &WalkOptions::new())
            .reason()?
        {
            let (path, changed) = match entry {
                Ok(entry) => (entry.path(), change(&entry)),
                Err(error) => (error.path().unwrap_or(Path::new("")).to_owned(), Err(error)),
            };
            if let Err(error) = changed.reason() {
                if error.is_of_volume() {
                    return Err(error);
                }
                let path = Escaped::of(&path);
                console.error(format_args!("cannot change '{path}': {error}"));
            }
        }
        Ok(())
    }

    /// Looks up the last name of a path, for operations of the library.
    pub(crate) fn named(&self, location: &Location) -> anyhow::Result<Named> {
        Named::of(&self.files, &location.path)
            .with_context(|| format!("cannot access '{location}'"))
    }

    /// Returns whether the path leads to a directory, following links.
    pub(crate) fn is_directory(&self, location: &Location) -> anyhow::Result<bool> {
        match self.files.metadata(location.path_within()).reason() {
            Ok(file) => Ok(file.is_dir()),
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates an empty file unless the path exists, at the target of dangling links.
    pub(crate) fn make_file(&self, location: &Location) -> anyhow::Result<File> {
        let options = OpenOptions::new().write(true).create(true);
        let options = options.mode(NEW_FILE_MODE).umask(umask());
        let made = self.files.open_with(location.path_within(), &options);
        made.reason().map_err(|error| match error.errno() {
            // The file cannot be created there.
            Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP => {
                anyhow::Error::from(error).context(format!("cannot access '{location}'"))
            }
            _ => error.into(),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Changes<'a> {
    options: &'a VolumeOptions,
    open: Vec<OpenImage>,
}

#[derive(Debug)]
struct OpenImage {
    location: Location,
    volume: Volume,
}

impl<'a> Changes<'a> {
    pub(crate) fn new(options: &'a VolumeOptions) -> Changes<'a> {
        Changes {
            options,
            open: Vec::new(),
        }
    }

    pub(crate) fn open(&mut self, location: &Location) -> anyhow::Result<Target> {
        let target = self.open_to_commit(location)?;
        location.must_be_writable()?;
        Ok(target)
    }

    /// Opens a volume for a command that only commits earlier changes.
    pub(crate) fn open_to_commit(&mut self, location: &Location) -> anyhow::Result<Target> {
        let volume = match self.opened(location) {
            Some(volume) => volume,
            None => {
                let volume = self.options.open_for_writing(location)?;
                self.open.push(OpenImage {
                    location: location.clone(),
                    volume: volume.clone(),
                });
                volume
            }
        };
        Ok(Target {
            files: self.options.files_of(&volume, location)?,
            volume,
            session: location.session().cloned(),
        })
    }

    /// Returns the volume of `location` if it is open for writing, perhaps under another name.
    pub(crate) fn opened(&self, location: &Location) -> Option<Volume> {
        if let Some(session) = location.session() {
            let mut volumes = self.open.iter().map(|open| &open.volume);
            return volumes
                .find(|volume| volume.is_same(session.volume()))
                .cloned();
        }
        let image = location.image.as_path().metadata().ok()?;
        let mut volumes = self.open.iter().map(|open| &open.volume);
        volumes.find(|volume| volume.lies_on(&image)).cloned()
    }

    /// Returns whether two locations are known to be on the same volume.
    fn is_same_volume(&self, a: &Location, b: &Location) -> bool {
        match (self.opened(a), self.opened(b)) {
            (Some(a), Some(b)) => a.is_same(&b),
            _ if a.session().is_some() || b.session().is_some() => {
                a.session().is_some() == b.session().is_some()
            }
            _ => a.shares_image(b),
        }
    }

    /// Calls `change` for each location, continuing after errors, and commits. Skips further locations on a
    /// volume that no longer accepts changes.
    pub(crate) fn each(
        options: &'a VolumeOptions,
        locations: &[Location],
        console: &mut Console,
        mut change: impl FnMut(&Target, &Location, &mut Console) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut changes = Changes::new(options);
        // Locations on volumes that no longer accept changes.
        let mut given_up: Vec<&Location> = Vec::new();
        for location in locations {
            if given_up
                .iter()
                .any(|of| changes.is_same_volume(of, location))
            {
                continue;
            }
            let done = changes
                .open(location)
                .and_then(|target| change(&target, location, console));
            if let Err(error) = done {
                console.failed(&error);
                if is_final(&error) {
                    given_up.push(location);
                }
            }
        }
        changes.commit_all(console);
        Ok(())
    }

    /// Commits the changes so far, and reports failures. Does nothing in a shell or a mount, which commit
    /// later.
    pub(crate) fn sync(&self, console: &mut Console) {
        for open in &self.open {
            if let Err(error) = open.commit(Volume::sync) {
                console.failed(&error);
            }
        }
    }

    /// Commits the changes to the open volume, discards the freed space, and ends the changes. Does nothing
    /// in a shell or a mount, which commit later.
    pub(crate) fn commit(self) -> anyhow::Result<()> {
        self.open.iter().try_for_each(OpenImage::close)
    }

    /// Commits the volumes of a command that opens several. Reports each failure.
    pub(crate) fn commit_all(self, console: &mut Console) {
        for open in &self.open {
            if let Err(error) = open.close() {
                console.failed(&error);
            }
        }
    }
}

impl OpenImage {
    fn close(&self) -> anyhow::Result<()> {
        self.commit(|volume| volume.clone().close())
    }

    fn commit(&self, commit: fn(&Volume) -> ubtrfs::Result<()>) -> anyhow::Result<()> {
        if self.location.session().is_some() {
            return Ok(());
        }
        let image = Escaped::of(self.location.image.as_path());
        let committed = commit(&self.volume).reason();
        committed.with_context(|| format!("cannot commit to '{image}'"))
    }
}

/// Returns whether further changes would fail for the same reason.
pub(crate) fn is_final(error: &anyhow::Error) -> bool {
    let mut reasons = error.chain().filter_map(|cause| cause.downcast_ref());
    reasons.any(Reason::is_of_volume)
}

/// Returns the id of a file as used by a mount.
pub(crate) fn id_of_file(file: &Metadata) -> FileId {
    FileId::new(RootId(file.subvolume_id()), InodeNr(file.ino()))
}

/// Returns the id of a directory as used by a mount.
pub(crate) fn id_of(dir: &Dir) -> FileId {
    FileId::new(RootId(dir.subvolume_id()), InodeNr(dir.ino()))
}
