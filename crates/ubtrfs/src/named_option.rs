//! Options by name and text, as programs in other languages set them.
//!
//! Not here: the options for opening, which have a table of their own (`ubtrfs_fs::OPEN_OPTIONS`).

use std::ffi::OsStr;

use ubtrfs_fs::OptionError;

use crate::error::{Cause, Naming, Result};
use crate::transfer::copy::{Reflink, Sparse};

/// An option that is set by its name. [`COPY_OPTIONS`](crate::COPY_OPTIONS) has an example.
#[derive(Debug)]
pub struct NamedOption<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) syntax: &'static str,
    /// The lines of the documentation.
    pub(crate) lines: &'static [&'static str],
    /// Returns `None`, and changes nothing, if the text is not valid.
    pub(crate) set: fn(&mut T, &OsStr) -> Option<()>,
}

impl<T> NamedOption<T> {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the accepted texts, as documentation and errors show them.
    pub fn syntax(&self) -> &'static str {
        self.syntax
    }

    /// Returns the documentation, which names no language.
    pub fn help(&self) -> String {
        let lines = self.lines.iter().map(|line| line.trim());
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        lines.join(" ")
    }
}

/// Sets an option by its name in a table. An error changes nothing.
pub(crate) fn set_named<T>(
    rows: &'static [NamedOption<T>],
    options: &mut T,
    name: &str,
    value: &OsStr,
) -> Result<()> {
    let set = match rows.iter().find(|row| row.name == name) {
        None => Err(OptionError::Unknown(name.into())),
        Some(row) => (row.set)(options, value).ok_or_else(|| OptionError::BadValue {
            name: row.name,
            value: value.into(),
            expected: row.syntax,
        }),
    };
    set.map_err(Cause::Option).naming_alone("set an option")
}

/// A type of values that can be set from text.
pub(crate) trait ValueOfText: Sized {
    const SYNTAX: &'static str;

    fn of_text(text: &str) -> Option<Self>;
}

impl ValueOfText for bool {
    const SYNTAX: &'static str = "true or false";

    fn of_text(text: &str) -> Option<bool> {
        text.parse().ok()
    }
}

/// A count.
impl ValueOfText for u64 {
    const SYNTAX: &'static str = "a number";

    fn of_text(text: &str) -> Option<u64> {
        text.parse().ok()
    }
}

/// A number of things in memory, or of one of them.
impl ValueOfText for usize {
    const SYNTAX: &'static str = u64::SYNTAX;

    fn of_text(text: &str) -> Option<usize> {
        text.parse().ok()
    }
}

/// Bits of a mode.
impl ValueOfText for u32 {
    const SYNTAX: &'static str = "an octal number";

    fn of_text(text: &str) -> Option<u32> {
        u32::from_str_radix(text, 8).ok()
    }
}

const WHEN: &str = "auto, always or never";

impl ValueOfText for Reflink {
    const SYNTAX: &'static str = WHEN;

    fn of_text(text: &str) -> Option<Reflink> {
        match text {
            "auto" => Some(Reflink::Auto),
            "always" => Some(Reflink::Always),
            "never" => Some(Reflink::Never),
            _ => None,
        }
    }
}

impl ValueOfText for Sparse {
    const SYNTAX: &'static str = WHEN;

    fn of_text(text: &str) -> Option<Sparse> {
        match text {
            "auto" => Some(Sparse::Auto),
            "always" => Some(Sparse::Always),
            "never" => Some(Sparse::Never),
            _ => None,
        }
    }
}

/// Defines setters of options, and a table of the same options by name. The documentation of a setter names no language.
macro_rules! named_options {
    ($(#[$about:meta])* $table:ident of $options:ident:
     $($(#[doc = $doc:literal])+ $name:ident: $ty:ty => $($place:ident).+ = $value:expr;)*) => {
        impl $options {
            $(
                $(#[doc = $doc])+
                #[must_use]
                pub fn $name(mut self, $name: $ty) -> $options {
                    self.$($place).+ = $value;
                    self
                }
            )*

            /// Sets an option by its name and a text, for programs that have both as strings.
            ///
            /// # Errors
            ///
            /// There is no such option, or the text is no value of it (`InvalidInput`).
            pub fn set(
                mut self,
                name: &str,
                value: impl AsRef<std::ffi::OsStr>,
            ) -> $crate::error::Result<$options> {
                $crate::named_option::set_named($table, &mut self, name, value.as_ref())?;
                Ok(self)
            }
        }

        $(#[$about])*
        pub static $table: &[$crate::named_option::NamedOption<$options>] = &[$(
            $crate::named_option::NamedOption {
                name: stringify!($name),
                syntax: <$ty as $crate::named_option::ValueOfText>::SYNTAX,
                lines: &[$($doc),+],
                set: |options, text| {
                    let $name = <$ty as $crate::named_option::ValueOfText>::of_text(text.to_str()?)?;
                    options.$($place).+ = $value;
                    Some(())
                },
            },
        )*];
    };
}

pub(crate) use named_options;

#[cfg(test)]
mod tests {
    use crate::{
        CHECK_OPTIONS, COPY_OPTIONS, Checker, CopyOptions, NamedOption, RECEIVE_OPTIONS,
        ReceiveOptions,
    };

    /// Sets each option to a text other than the default, and then to one that is no value.
    fn check<T: Clone + std::fmt::Debug>(rows: &[NamedOption<T>], default: &T) {
        for row in rows {
            let mut options = default.clone();
            let texts = ["false", "true", "7", "never"];
            let good = texts.iter().filter(|text| {
                let is_set = (row.set)(&mut options, text.as_ref()).is_some();
                is_set && format!("{options:?}") != format!("{default:?}")
            });
            assert!(good.count() > 0, "{}", row.name());
            assert_eq!(
                (row.set)(&mut options, "no value".as_ref()),
                None,
                "{}",
                row.name()
            );
            assert!(
                row.help().ends_with('.') && !row.help().contains("  "),
                "{}",
                row.help()
            );
        }
    }

    #[test]
    fn each_option_is_set_by_name() {
        check(COPY_OPTIONS, &CopyOptions::new());
        check(RECEIVE_OPTIONS, &ReceiveOptions::new());
        check(CHECK_OPTIONS, &Checker::new());
        let copy = CopyOptions::new().set("umask", "022").unwrap();
        let same = CopyOptions::new().umask(0o022);
        assert_eq!(format!("{copy:?}"), format!("{same:?}"));
        let refused = copy.set("sparse", "seldom").unwrap_err();
        assert_eq!(
            refused.reason().to_string(),
            "option 'sparse': bad value 'seldom', expected auto, always or never"
        );
    }
}
