//! An error with its causes, as one line of text.

use std::fmt;

/// Displays an error and its causes from the outside in, separated by colons.
///
/// A cause that its error already quotes is skipped. Errors of the layers below quote the system's error and
/// also have it as their source.
#[derive(Debug)]
pub(crate) struct ErrorChain<'a>(pub(crate) &'a anyhow::Error);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for cause in self.0.chain() {
            let cause = cause.to_string();
            if text.is_empty() {
                text = cause;
            } else if !text.ends_with(&cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open it: {source}")]
    struct Quoting {
        source: io::Error,
    }

    #[test]
    fn cause_that_is_quoted_is_shown_once() {
        let source = io::Error::from_raw_os_error(2);
        let wanted = format!("no volume: cannot open it: {source}");
        let error = Err::<(), _>(Quoting { source }).context("no volume");
        assert_eq!(ErrorChain(&error.unwrap_err()).to_string(), wanted);
    }

    #[test]
    fn causes_that_are_not_quoted_follow() {
        let error = anyhow::anyhow!("c").context("b").context("a");
        assert_eq!(ErrorChain(&error).to_string(), "a: b: c");
    }
}
