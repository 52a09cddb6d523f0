//! An argument that names a file of this machine or in a volume.
//!
//! `IMAGE:/path` is in a volume if IMAGE exists and is not a directory, or if nothing with the whole name
//! exists. A URI of a device is in its volume, also without a path. In a shell every path is in its volume unless it begins with `host:`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use clap::builder::{TypedValueParser, ValueParserFactory};
use ubtrfs::DeviceName;

use crate::presentation::quoting::Escaped;
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;
use crate::volume_access::session::Session;

const HOST_PREFIX: &[u8] = b"host:";
const STANDARD_STREAM: &[u8] = b"-";

#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Host {
        path: PathBuf,
        /// Whether it means the root of an image where a file of this machine is impossible.
        may_be_image: bool,
    },
    Volume(Location),
}

impl Operand {
    fn parse(argument: &OsStr, session: Option<&Arc<Session>>) -> Operand {
        let bytes = argument.as_bytes();
        if let Some(session) = session {
            let is_input = bytes == STANDARD_STREAM;
            return match bytes
                .strip_prefix(HOST_PREFIX)
                .or(is_input.then_some(bytes))
            {
                Some(path) => Operand::Host {
                    path: PathBuf::from(OsStr::from_bytes(path)),
                    may_be_image: false,
                },
                None => Operand::Volume(Location::within(session, bytes)),
            };
        }
        let location = Location::parse(argument);
        let DeviceName::Path(image) = &location.image else {
            return Operand::Volume(location);
        };
        let is_image = !image.is_dir() && image.exists();
        if location.is_whole(argument)
            || !is_image && Path::new(argument).symlink_metadata().is_ok()
        {
            return Operand::Host {
                path: PathBuf::from(argument),
                may_be_image: true,
            };
        }
        Operand::Volume(location)
    }

    /// Returns whether it is "-": standard input as a source, standard output as a destination.
    pub(crate) fn is_standard_stream(&self) -> bool {
        matches!(self, Operand::Host { path, .. } if path.as_os_str().as_bytes() == STANDARD_STREAM)
    }

    /// Returns whether it names a path in a volume, and not an image alone or a file of this machine.
    pub(crate) fn is_in_volume(&self) -> bool {
        matches!(self, Operand::Volume(_))
    }

    /// Returns the location in a volume where the operand cannot be a file of this machine. A whole image
    /// means its root.
    pub(crate) fn in_volume(&self) -> Option<Location> {
        match self {
            Operand::Volume(location) => Some(location.clone()),
            Operand::Host { path, may_be_image } => {
                may_be_image.then(|| Location::parse(path.as_os_str()))
            }
        }
    }

    /// Returns the operand's access and modification time.
    pub(crate) fn times(
        &self,
        options: &VolumeOptions,
    ) -> anyhow::Result<(SystemTime, SystemTime)> {
        match self {
            Operand::Host { path, .. } => {
                let cannot = || format!("cannot access '{self}'");
                let metadata = path.metadata().with_context(cannot)?;
                let (access, modification) = (metadata.accessed(), metadata.modified());
                Ok((
                    access.with_context(cannot)?,
                    modification.with_context(cannot)?,
                ))
            }
            Operand::Volume(location) => {
                let opened = options.open(location)?;
                let metadata = opened.files.metadata(location.path_within()).reason()?;
                Ok((metadata.accessed(), metadata.modified()))
            }
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Host { path, .. } => write!(f, "{}", Escaped::of(path)),
            Operand::Volume(location) => write!(f, "{location}"),
        }
    }
}

/// A parser of operands. Parsing never fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperandParser {
    session: Option<Arc<Session>>,
}

impl OperandParser {
    pub(crate) fn within(session: &Arc<Session>) -> OperandParser {
        OperandParser {
            session: Some(Arc::clone(session)),
        }
    }
}

impl TypedValueParser for OperandParser {
    type Value = Operand;

    fn parse_ref(
        &self,
        _: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Operand, clap::Error> {
        Ok(Operand::parse(value, self.session.as_ref()))
    }
}

impl ValueParserFactory for Operand {
    type Parser = OperandParser;

    fn value_parser() -> OperandParser {
        OperandParser::default()
    }
}
