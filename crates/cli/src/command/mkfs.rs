//! `ubtrfs mkfs`: creates a volume on devices or image files, empty or filled, like mkfs.btrfs.
//!
//! Everything is checked and planned before any file is created or opened for writing, so a refused command
//! leaves no trace.
//!
//! Here: the options and the sequence of steps. Not here: the structures of a volume (the library), its
//! contents (`rootdir`).

mod rootdir;
mod summary;
mod target;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use ubtrfs::{
    BlockDevice, CsumType, FeatureSet, FileDevice, Mkfs as NewVolume, MkfsOptions, Profile, Uuid,
};
use ubtrfs_device::register_with_kernel;

use crate::command::chown::Ownership;
use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::interrupt;
use crate::presentation::size_suffix::parse_size;
use crate::presentation::transfer_console::FillConsole;
use crate::volume_access::reason::Reasoned;
use rootdir::{Rootdir, RootdirArgs};
use summary::Summary;
use target::Target;

/// The word in a feature list that requests the list of features.
const LIST_ALL: &str = "list-all";
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The option that the program adds to itself under the name mkfs.btrfs.
pub(crate) const AS_MKFS_BTRFS: &str = "as-mkfs-btrfs";
/// Features that are defaults here but not in mkfs.btrfs 6.14.
const NOT_OF_MKFS_BTRFS: &str = "^block-group-tree";

/// Make a btrfs volume on devices or image files
#[derive(Debug, clap::Args)]
pub(crate) struct Mkfs {
    /// Data profile: single, dup, raid0, raid1, raid1c3, raid1c4, raid10, raid5 or raid6
    #[arg(
        short,
        long,
        value_name = "PROFILE",
        help_heading = "Allocation profiles"
    )]
    data: Option<String>,
    /// Metadata profile, as for data [default: dup, raid1 on several devices]
    #[arg(
        short,
        long,
        value_name = "PROFILE",
        help_heading = "Allocation profiles"
    )]
    metadata: Option<String>,
    /// Mix metadata and data together, for small volumes
    #[arg(short = 'M', long, help_heading = "Allocation profiles")]
    mixed: bool,

    /// Checksum algorithm: crc32c, xxhash, sha256 or blake2
    #[arg(
        long,
        visible_alias = "checksum",
        value_name = "TYPE",
        default_value = "crc32c",
        help_heading = "Features"
    )]
    csum: String,
    /// Size of tree blocks, 4K to 64K [default: 16K]
    #[arg(short, long, value_name = "SIZE", help_heading = "Features")]
    nodesize: Option<String>,
    /// Size of data blocks, 4K to 64K; a kernel with smaller pages may not mount it
    #[arg(
        short,
        long,
        value_name = "SIZE",
        default_value = "4K",
        help_heading = "Features"
    )]
    sectorsize: String,
    /// Set features by name, or clear them with a leading ^; "list-all" lists them
    #[arg(short = 'O', long, value_name = "LIST", help_heading = "Features")]
    features: Vec<String>,
    /// The old name of --features
    #[arg(short = 'R', long, value_name = "LIST", hide = true)]
    runtime_features: Vec<String>,
    /// Label of the volume, up to 255 bytes
    #[arg(short = 'L', long, value_name = "LABEL", help_heading = "Features")]
    label: Option<OsString>,
    /// UUID of the volume; must be unique
    #[arg(short = 'U', long, value_name = "UUID", help_heading = "Features")]
    uuid: Option<String>,
    /// UUID of the device, where there is only one
    #[arg(long, value_name = "UUID", help_heading = "Features")]
    device_uuid: Option<String>,

    /// Give the root directory to this user and group [default: to the user who runs the command]
    ///
    /// Names, or numbers. mkfs.btrfs gives it to root. With --rootdir it belongs to the owner of that directory.
    #[arg(
        long,
        value_name = "USER[:GROUP]",
        conflicts_with = "rootdir",
        help_heading = "Creation"
    )]
    root_owner: Option<Ownership>,
    /// Use SIZE of each device; image files that do not exist are made with it
    ///
    /// With --rootdir image files become as large as the files need.
    #[arg(short, long, value_name = "SIZE", help_heading = "Creation")]
    byte_count: Option<String>,
    #[command(flatten)]
    rootdir: RootdirArgs,
    /// Leave the old contents of the devices instead of discarding them
    #[arg(short = 'K', long, help_heading = "Creation")]
    nodiscard: bool,
    /// Overwrite an existing file system
    #[arg(short, long, help_heading = "Creation")]
    force: bool,

    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
    /// Increase verbosity
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Print version
    #[arg(short = 'V', long)]
    version: bool,
    /// Take the features of mkfs.btrfs 6.14 by default
    #[arg(long = AS_MKFS_BTRFS, hide = true)]
    as_mkfs_btrfs: bool,

    /// Devices or image files
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

impl Mkfs {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if self.version {
            let version = env!("CARGO_PKG_VERSION");
            writeln!(console.out, "mkfs.btrfs, part of ubtrfs {version}")?;
            return Ok(());
        }
        let mut lists = self.features.iter().chain(&self.runtime_features);
        if lists.any(|list| list.split(',').any(|word| word == LIST_ALL)) {
            return summary::list_features(&self.default_features()?, &mut console.out);
        }
        console.quiet |= self.quiet;
        console.verbose = console.verbose.max(self.verbose);
        let options = self.options(console)?;
        if self.devices.is_empty() {
            bail!("no device given");
        }
        let rootdir = self.rootdir.resolve()?;
        self.make(&options, rootdir.as_ref(), console)
    }

    fn make(
        &self,
        options: &MkfsOptions,
        rootdir: Option<&Rootdir<'_>>,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let byte_count = self.byte_count.as_deref().map(parse_size).transpose()?;
        let new_volume = self.new_volume(options, source_date_epoch()?)?;
        let geometry = new_volume.geometry(self.devices.len()).reason()?;
        let least = geometry.min_device_bytes();
        // The size of images follows from the files.
        let image_bytes = rootdir.map(|_| least);
        let (paths, force) = (&self.devices, self.force);
        let mut targets = Target::find_all(paths, byte_count, image_bytes, force, console)?;
        let required = byte_count.filter(|_| rootdir.is_none());
        target::check_sizes(&targets, required, least, console)?;
        let sizes: Vec<u64> = targets.iter().map(|target| target.used_bytes).collect();
        let warn = |console: &mut Console| {
            if !console.quiet {
                for warning in geometry.warnings() {
                    console.warning(format_args!("{warning}\n"));
                }
                summary::warn_of_sectorsize(&geometry, console);
            }
        };
        let planned = match rootdir {
            None => {
                let planned = new_volume.plan(&sizes).reason()?;
                warn(console);
                planned
            }
            Some(rootdir) => {
                warn(console);
                rootdir.warn_of_fakeroot(console);
                let filled = rootdir.fill(new_volume, &targets)?;
                filled.plan(&sizes).reason()?
            }
        };
        let opened = targets.iter_mut().map(Target::open).collect();
        let remove_made = || targets.iter().for_each(Target::remove_if_made);
        let opened: anyhow::Result<Vec<FileDevice>> = opened;
        let devices = opened.inspect_err(|_| remove_made())?;
        if !self.nodiscard && !console.quiet {
            let of_targets = devices.iter().zip(&targets);
            for (device, _) in of_targets.filter(|(_, target)| target.is_block_device()) {
                summary::announce_discard(device, &mut console.out)?;
            }
        }
        let named: Vec<(&Path, &dyn BlockDevice)> = devices
            .iter()
            .map(|device| (device.path(), device as &dyn BlockDevice))
            .collect();
        if rootdir.is_some() {
            if targets.iter().any(Target::is_made) {
                // Ctrl-C leaves no incomplete volume behind.
                interrupt::watch().context("cannot handle signals")?;
            }
            console.start_progress(COPY_PROGRESS);
        }
        let written = planned.write(&named, &mut FillConsole::new(console));
        console.end_progress();
        let written = written.reason().inspect_err(|_| remove_made());
        let made = match rootdir {
            None => written.context("error during mkfs")?,
            Some(_) => written?,
        };
        if let (Some(rootdir), Some(filled)) = (rootdir, &made.filled) {
            if let Some(left_out) = &filled.left_out_acls {
                summary::warn_of_acls(left_out, console);
            }
            if !console.quiet {
                summary::warn_of_growth(&made, byte_count, console);
                rootdir.print(filled, &mut console.out)?;
            }
        }
        drop(named);
        drop(devices);
        register(&targets);
        if !console.quiet {
            let summary = Summary {
                made: &made,
                targets: &targets,
            };
            let names_device = self.device_uuid.is_some();
            summary.print(names_device, &mut console.out)?;
        }
        Ok(())
    }

    fn options(&self, console: &mut Console) -> anyhow::Result<MkfsOptions> {
        let label = self.label.as_ref().map(|label| label.as_bytes().to_vec());
        let label = label.unwrap_or_default();
        let most = MkfsOptions::MAX_LABEL_BYTES;
        if label.len() > most {
            let label = String::from_utf8_lossy(&label);
            bail!("label {label} is too long (max {most})");
        }
        let csum = &self.csum;
        let csum_type =
            CsumType::from_name(csum).ok_or_else(|| anyhow!("unknown csum type {csum}"))?;
        Ok(MkfsOptions {
            label,
            data: profile("data", self.data.as_deref())?,
            metadata: profile("metadata", self.metadata.as_deref())?,
            nodesize: self.nodesize.as_deref().map(node_or_sector).transpose()?,
            sectorsize: node_or_sector(&self.sectorsize)?,
            csum_type,
            features: self.feature_set(console)?,
            root_owner: self.root_owner(),
        })
    }

    /// Returns the owner of the root directory. By default it is the user, who can then write to the mounted
    /// volume.
    fn root_owner(&self) -> (u32, u32) {
        let own = || {
            let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
            (uid.as_raw(), gid.as_raw())
        };
        let runs = match own() {
            (0, _) => (0, 0),
            user => user,
        };
        match &self.root_owner {
            Some(owner) => (owner.uid.unwrap_or(runs.0), owner.gid.unwrap_or(runs.1)),
            None => runs,
        }
    }

    fn default_features(&self) -> anyhow::Result<FeatureSet> {
        let mut features = FeatureSet::default();
        if self.as_mkfs_btrfs {
            features.apply_list(NOT_OF_MKFS_BTRFS)?;
        }
        Ok(features)
    }

    fn feature_set(&self, console: &mut Console) -> anyhow::Result<FeatureSet> {
        let mut features = self.default_features()?;
        if !self.runtime_features.is_empty() {
            console.warning("runtime features are deprecated, use -O|--features instead");
        }
        // A single list, so that explicit features override defaults.
        let lists: Vec<&str> = self
            .features
            .iter()
            .chain(&self.runtime_features)
            .map(String::as_str)
            .collect();
        features.apply_list(&lists.join(","))?;
        if self.mixed {
            features.apply_list("mixed-bg")?;
        }
        Ok(features)
    }

    fn new_volume(
        &self,
        options: &MkfsOptions,
        epoch: Option<SystemTime>,
    ) -> anyhow::Result<NewVolume> {
        let mut new_volume = NewVolume::new(options.clone()).discard(!self.nodiscard);
        if let Some(epoch) = epoch {
            new_volume = new_volume.repeatable(epoch);
        }
        if let Some(text) = &self.uuid {
            let uuid = uuid(text).ok_or_else(|| anyhow!("could not parse UUID: {text}"))?;
            new_volume = new_volume.uuid(uuid);
        }
        if let Some(text) = &self.device_uuid {
            let uuid = uuid(text).ok_or_else(|| anyhow!("could not parse device UUID: {text}"))?;
            if self.devices.len() != 1 {
                bail!(
                    "the option --device-uuid {text} can be used only for a single device filesystem"
                );
            }
            new_volume = new_volume.device_uuids([uuid]);
        }
        Ok(new_volume)
    }
}

/// Returns the timestamp for reproducible builds.
fn source_date_epoch() -> anyhow::Result<Option<SystemTime>> {
    let Some(text) = std::env::var_os(SOURCE_DATE_EPOCH) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse::<i64>().ok());
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let time = seconds.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    let shown = text.display();
    Ok(Some(time.ok_or_else(|| {
        anyhow!("{SOURCE_DATE_EPOCH} is not a number of seconds: {shown}")
    })?))
}

/// Registers the volume on block devices with the kernel, if the kernel supports it. The devices are closed by now: the
/// kernel does not read one that a process has claimed.
fn register(targets: &[Target]) {
    for Target { path, .. } in targets.iter().filter(|target| target.is_block_device()) {
        if let Err(error) = register_with_kernel(path) {
            tracing::info!(path = %path.display(), %error, "not registered with the kernel");
        }
    }
}

fn profile(kind: &str, name: Option<&str>) -> anyhow::Result<Option<Profile>> {
    let profile =
        |name| Profile::from_name(name).ok_or_else(|| anyhow!("unknown {kind} profile {name}"));
    name.map(profile).transpose()
}

fn node_or_sector(text: &str) -> anyhow::Result<u32> {
    let size = parse_size(text)?;
    u32::try_from(size).map_err(|_| anyhow!("size {size} is too large"))
}

/// Parses a UUID, only in the usual form of 36 characters.
fn uuid(text: &str) -> Option<Uuid> {
    let parsed = uuid::Uuid::try_parse(text).ok()?;
    (text.len() == uuid::fmt::Hyphenated::LENGTH).then(|| Uuid(parsed.into_bytes()))
}
