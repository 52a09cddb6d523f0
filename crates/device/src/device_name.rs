//! Names of devices: a path, or a URI with a scheme.
//!
//! A device name with `://` after a scheme is a URI unless a file has that path. No scheme is supported yet: a device
//! with a URI is refused when it is opened.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// The name of a device or an image.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum DeviceName {
    Path(PathBuf),
    Uri(DeviceUri),
}

/// A URI such as `nbd://host/export`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct DeviceUri {
    text: OsString,
    scheme_len: usize,
}

/// A device was named by a URI whose scheme is not supported.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("devices of the scheme '{0}' are not supported")]
pub struct UnsupportedScheme(String);

impl DeviceUri {
    fn parse(name: &OsStr) -> Option<DeviceUri> {
        let scheme_len = scheme_len(name.as_bytes())?;
        Some(DeviceUri {
            text: name.to_owned(),
            scheme_len,
        })
    }

    /// Returns the part before `://`.
    pub fn scheme(&self) -> &str {
        let scheme = &self.text.as_bytes()[..self.scheme_len];
        str::from_utf8(scheme).expect("a scheme is ASCII")
    }
}

/// Returns the length of the scheme before `://`. Names of images often have dots, so dots are not accepted in a scheme.
fn scheme_len(name: &[u8]) -> Option<usize> {
    let len = name.windows(3).position(|bytes| bytes == b"://")?;
    let (first, others) = name[..len].split_first()?;
    let is_scheme_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-".contains(byte);
    (first.is_ascii_alphabetic() && others.iter().all(is_scheme_byte)).then_some(len)
}

impl DeviceName {
    /// Reads the name of a device.
    pub fn parse(name: &OsStr) -> DeviceName {
        match DeviceUri::parse(name) {
            Some(uri) if !Path::new(name).exists() => DeviceName::Uri(uri),
            _ => DeviceName::Path(name.into()),
        }
    }

    /// Splits `DEVICE:/path` into the name of a device and a path in its volume. The path is `/` if the argument is only
    /// a name.
    ///
    /// A file name may contain colons, and a path in a volume may contain `:/`. So a path is split at the last place
    /// where the left part exists and is not a folder, otherwise at the last place. A URI ends before the first `:/`
    /// after its scheme: in a URI, other ones can be written as `%3A/`.
    pub fn split(argument: &OsStr) -> (DeviceName, Vec<u8>) {
        Self::split_with(argument, &|path| path.exists() && !path.is_dir())
    }

    fn split_with(argument: &OsStr, is_image: &dyn Fn(&Path) -> bool) -> (DeviceName, Vec<u8>) {
        let bytes = argument.as_bytes();
        let left = |at: usize| OsStr::from_bytes(&bytes[..at]);
        let of_path = |at: usize| (DeviceName::Path(left(at).into()), within(&bytes[at..]));
        let places =
            |from: usize| (from.max(1)..bytes.len()).filter(|&at| bytes[at..].starts_with(b":/"));
        let whole = bytes.len();
        let images = std::iter::once(whole).chain(places(0).rev());
        if let Some(at) = images.into_iter().find(|&at| is_image(Path::new(left(at)))) {
            return of_path(at);
        }
        if let Some(scheme_len) = scheme_len(bytes) {
            let text = left(places(scheme_len + 3).next().unwrap_or(whole)).to_owned();
            let path = within(&bytes[text.len()..]);
            return (DeviceName::Uri(DeviceUri { text, scheme_len }), path);
        }
        of_path(places(0).next_back().unwrap_or(whole))
    }

    /// Returns the path of the device.
    ///
    /// # Errors
    ///
    /// It has a URI.
    pub fn path(&self) -> Result<&Path, UnsupportedScheme> {
        match self {
            DeviceName::Path(path) => Ok(path),
            DeviceName::Uri(uri) => Err(UnsupportedScheme(uri.scheme().to_owned())),
        }
    }

    /// Returns the name as a path. There is no file with the path of a URI.
    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }

    /// Returns the name as it was written.
    pub fn as_os_str(&self) -> &OsStr {
        match self {
            DeviceName::Path(path) => path.as_os_str(),
            DeviceName::Uri(uri) => &uri.text,
        }
    }
}

/// Returns the path after a name: `rest` without its colon, or the root.
fn within(rest: &[u8]) -> Vec<u8> {
    rest.get(1..).unwrap_or(b"/").to_vec()
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_os_str().display().fmt(f)
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for DeviceName {
    fn from(name: &T) -> DeviceName {
        DeviceName::parse(name.as_ref())
    }
}

impl From<OsString> for DeviceName {
    fn from(name: OsString) -> DeviceName {
        DeviceName::parse(&name)
    }
}

impl From<PathBuf> for DeviceName {
    fn from(name: PathBuf) -> DeviceName {
        DeviceName::parse(name.as_os_str())
    }
}

impl From<String> for DeviceName {
    fn from(name: String) -> DeviceName {
        DeviceName::parse(name.as_ref())
    }
}
