//! A progress terminal that draws nothing at first: a command that ends soon displays no progress.
//!
//! Progress is one line, and the cursor stays at its beginning until the first visible drawing.

use std::io;
use std::time::{Duration, Instant};

use indicatif::TermLike;
use ubtrfs_device::clock;

use crate::presentation::progress_line;

#[derive(Debug)]
pub(crate) struct DelayedTerm<T> {
    term: T,
    shown_from: Instant,
}

impl<T: TermLike> DelayedTerm<T> {
    pub(crate) fn new(term: T, delay: Duration) -> DelayedTerm<T> {
        DelayedTerm {
            term,
            shown_from: clock::now() + delay,
        }
    }

    fn draw(&self, draw: impl FnOnce(&T) -> io::Result<()>) -> io::Result<()> {
        if clock::now() < self.shown_from {
            return Ok(());
        }
        draw(&self.term)
    }
}

impl<T: TermLike> TermLike for DelayedTerm<T> {
    fn width(&self) -> u16 {
        self.term.width()
    }

    fn height(&self) -> u16 {
        self.term.height()
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_up(lines))
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_down(lines))
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_right(columns))
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_left(columns))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.draw(|term| term.write_line(text))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(|term| term.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw(TermLike::clear_line)
    }

    fn flush(&self) -> io::Result<()> {
        self.draw(|term| progress_line::draw(|| term.flush()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

    use super::*;

    /// Stores the written text.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.write_str("clear ")
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shown_after(delay: Duration) -> String {
        let screen = Screen::default();
        let term = DelayedTerm::new(screen.clone(), delay);
        let target = ProgressDrawTarget::term_like(Box::new(term));
        let style = ProgressStyle::with_template("{msg}").unwrap();
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        bar.set_message("half");
        bar.tick();
        bar.finish_and_clear();
        screen.0.lock().unwrap().clone()
    }

    #[test]
    fn progress_is_drawn_after_the_delay_alone() {
        assert!(shown_after(Duration::ZERO).contains("half"));
        assert_eq!(shown_after(Duration::from_secs(3600)), "");
    }
}
