//! Numbers with names.

/// Declares an enum of the numbers in a stream, with their names in `btrfs receive --dump`.
macro_rules! numbered {
    (
        $(#[$about:meta])*
        pub enum $Enum:ident {
            $($(#[$doc:meta])* $Variant:ident = $number:literal $name:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(u16)]
        pub enum $Enum {
            $($(#[$doc])* $Variant = $number,)*
        }

        impl $Enum {
            pub fn from_raw(raw: u16) -> Option<Self> {
                match raw {
                    $($number => Some(Self::$Variant),)*
                    _ => None,
                }
            }

            pub fn raw(self) -> u16 {
                self as u16
            }

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)*
                }
            }
        }
    };
}

pub(super) use numbered;
