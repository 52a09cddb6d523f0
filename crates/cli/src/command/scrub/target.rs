//! The volume that a scrub is for: an image, the volume of a shell, or a mount.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Context;
use ubtrfs::{DeviceAccess, DeviceScrub, Event, OpenScrub, ScrubOptions, Volume, scan};

use super::mounted::MountScrub;
use super::outcome::Outcome;
use super::serving::Running;
use crate::presentation::quoting::Escaped;
use crate::volume_access::held;
use crate::volume_access::ioctls::Asked;
use crate::volume_access::location::{DeviceOptions, Location};
use crate::volume_access::reason::Reasoned;

/// A volume to scrub.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) fsid: String,
    /// The operand, for messages.
    pub(super) shown: String,
    /// The ids of the devices to scrub, with their paths.
    pub(super) devices: Vec<(u64, String)>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Image(Box<OpenScrub>),
    Shell(Volume),
    Mount(MountScrub),
}

/// Returns an operand for messages: an image, or a path in a mount or a shell.
pub(super) fn shown(location: &Location) -> String {
    match location.session() {
        Some(_) => location.to_string(),
        None => Escaped::of(location.image.as_path()).to_string(),
    }
}

/// Returns the UUID of the volume on an image or device.
pub(super) fn fsid_of(image: &Path) -> anyhow::Result<String> {
    let found = scan(&[image]).into_iter().next();
    let found = found.filter(|_| !image.is_dir());
    let found = found.with_context(|| format!("'{}' is not a btrfs volume", Escaped::of(image)))?;
    Ok(found.uuid.to_string())
}

/// Fails if a scrub of the volume is running.
pub(super) fn must_not_run(fsid: &str, shown: &str) -> anyhow::Result<()> {
    if Running::find(fsid).is_some() {
        anyhow::bail!(
            "Scrub is already running.\nTo cancel use 'ubtrfs scrub cancel {shown}'.\n\
             To see the status use 'ubtrfs scrub status [-d] {shown}'"
        );
    }
    Ok(())
}

impl Target {
    /// Opens the volume of an operand that is not in a mount. A device of a mounted volume is scrubbed by the mount.
    pub(super) fn open(
        location: &Location,
        devices: &DeviceOptions,
        read_only: bool,
        is_forced: bool,
    ) -> anyhow::Result<Target> {
        if let Some(session) = location.session() {
            let access = if read_only {
                DeviceAccess::Read
            } else {
                DeviceAccess::Write
            };
            return Ok(Target::of_shell(location, session.volume_for(access)?));
        }
        let image = location.image.as_path();
        if let Some((asked, devid)) = Asked::mount_of_device(image) {
            return Target::of_mount(asked, Some(devid), Escaped::of(image).to_string());
        }
        let shown = Escaped::of(image).to_string();
        let fsid = fsid_of(image)?;
        if !is_forced {
            must_not_run(&fsid, &shown)?;
        }
        let names = devices.all_named(std::slice::from_ref(&location.image))?;
        let access = DeviceAccess::Write;
        let options = ScrubOptions::new()
            .read_only(read_only)
            .degraded(devices.is_degraded())
            .scan(devices.places(&names, access)?);
        let open = || Ok(options.open(&names).reason()?);
        let opened = held::when_free(held::FOR_COMMANDS, open).map_err(held::name_the_mount);
        let opened = opened.with_context(|| format!("cannot open '{shown}'"))?;
        let devices = opened.devices().into_iter().map(|(id, path)| {
            let path = path.as_deref().map(Escaped::of);
            (
                id,
                path.map_or("missing".to_owned(), |path| path.to_string()),
            )
        });
        Ok(Target {
            fsid,
            shown,
            devices: devices.collect(),
            kind: Kind::Image(Box::new(opened)),
        })
    }

    fn of_shell(location: &Location, volume: Volume) -> Target {
        let devices = volume.devices().into_iter().map(|device| {
            let path = device.path.as_deref().map(Escaped::of);
            let path = path.map_or("missing".to_owned(), |path| path.to_string());
            (device.id, path)
        });
        Target {
            fsid: volume.uuid().to_string(),
            shown: location.to_string(),
            devices: devices.collect(),
            kind: Kind::Shell(volume),
        }
    }

    /// Uses a mount, for one device or for all.
    pub(super) fn of_mount(
        asked: Asked,
        devid: Option<u64>,
        shown: String,
    ) -> anyhow::Result<Target> {
        let mount = MountScrub::new(asked, devid)?;
        Ok(Target {
            fsid: mount.fsid.clone(),
            devices: mount.devices.clone(),
            shown,
            kind: Kind::Mount(mount),
        })
    }

    /// Returns the mount, if the scrub is done by one.
    pub(super) fn mount(&self) -> Option<&MountScrub> {
        match &self.kind {
            Kind::Mount(mount) => Some(mount),
            Kind::Image(_) | Kind::Shell(_) => None,
        }
    }

    /// Runs the scrub. `see` receives the counts several times a second, and may end it.
    pub(super) fn run(
        self,
        options: &ScrubOptions,
        see: &mut dyn FnMut(&[DeviceScrub]) -> ControlFlow<()>,
    ) -> anyhow::Result<Outcome> {
        let mut progress = |event: &Event<'_>| match event {
            Event::Scrub(devices) => see(devices),
            _ => ControlFlow::Continue(()),
        };
        let report = match self.kind {
            Kind::Mount(mount) => return mount.run(options, see),
            Kind::Shell(volume) => volume.scrub(options, &mut progress),
            Kind::Image(mut opened) => {
                opened.set_options(options);
                opened.run(&mut progress)
            }
        };
        let report = report.reason()?;
        Ok(Outcome {
            devices: report.devices.clone(),
            is_cancelled: report.is_cancelled,
            failed: Vec::new(),
            report: Some(report),
        })
    }
}
