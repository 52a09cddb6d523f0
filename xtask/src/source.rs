//! A Rust source split into code, comments and strings, without a full parser.
//!
//! The code keeps the length and the line breaks of the text, with blanks for comments and the insides of strings.
//! Tests are byte ranges, found by `#[cfg(test)]` and similar attributes.

#[cfg(test)]
mod tests;

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `//!`
    Inner,
    /// `///`
    Outer,
    Comment,
    String,
}

/// A comment of one line or of a block, or a string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
    /// The text after the marker of a comment, or between the quotes of a string.
    pub(crate) inside: Range<usize>,
    pub(crate) in_test: bool,
}

pub(crate) struct Source {
    pub(crate) code: String,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) tests: Vec<Range<usize>>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Source {
        let mut lexer = Lexer {
            text: text.as_bytes(),
            code: text.as_bytes().to_vec(),
            pieces: Vec::new(),
            at: 0,
            line: 1,
        };
        lexer.run();
        let Lexer {
            code, mut pieces, ..
        } = lexer;
        // Blanks replace whole characters, except inside of a block, where `from_utf8_lossy` repairs them.
        let code = String::from_utf8_lossy(&code).into_owned();
        let tests = test_ranges(&code);
        for piece in &mut pieces {
            piece.in_test = tests.iter().any(|test| test.contains(&piece.inside.start));
        }
        Source {
            code,
            pieces,
            tests,
        }
    }

    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|test| test.contains(&at))
    }

    /// Lists the test-only modules that have their own files.
    pub(crate) fn test_modules(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().filter_map(|test| {
            let item = self.code[test.clone()].strip_suffix(';')?;
            let (before, name) = item.rsplit_once(char::is_whitespace)?;
            before.trim_end().ends_with("mod").then_some(name)
        })
    }
}

struct Lexer<'a> {
    text: &'a [u8],
    code: Vec<u8>,
    pieces: Vec<Piece>,
    at: usize,
    line: usize,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b'/' if self.peek(1) == b'/' => self.line_comment(),
                b'/' if self.peek(1) == b'*' => self.block_comment(),
                b'"' => self.string(),
                b'\'' => self.quote(),
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn line_comment(&mut self) {
        let (kind, marker) = match (self.peek(2), self.peek(3)) {
            (b'!', _) => (Kind::Inner, 3),
            (b'/', b'/') => (Kind::Comment, 2),
            (b'/', _) => (Kind::Outer, 3),
            _ => (Kind::Comment, 2),
        };
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let end = self.at + end.unwrap_or(rest.len());
        self.piece(kind, self.at + marker..end, self.at..end);
    }

    fn block_comment(&mut self) {
        let (start, mut depth) = (self.at, 0);
        let mut end = start;
        while end < self.text.len() {
            match &self.text[end..] {
                [b'/', b'*', ..] => {
                    depth += 1;
                    end += 2;
                }
                [b'*', b'/', ..] => {
                    depth -= 1;
                    end += 2;
                    if depth == 0 {
                        break;
                    }
                }
                _ => end += 1,
            }
        }
        self.piece(Kind::Comment, start + 2..end, start..end);
    }

    fn string(&mut self) {
        let start = self.at + 1;
        let (inside, end) = match self.hashes_of_raw() {
            Some(hashes) => {
                let mut end = start;
                let closes = |at: usize| {
                    self.text[at] == b'"'
                        && self.text[at + 1..].len() >= hashes
                        && self.text[at + 1..][..hashes].iter().all(|&b| b == b'#')
                };
                while end < self.text.len() && !closes(end) {
                    end += 1;
                }
                (start..end, end + 1 + hashes)
            }
            None => {
                let mut end = start;
                while end < self.text.len() && self.text[end] != b'"' {
                    end += if self.text[end] == b'\\' { 2 } else { 1 };
                }
                (start..end, end + 1)
            }
        };
        let inside = inside.start..inside.end.min(self.text.len());
        self.piece(Kind::String, inside.clone(), inside);
        self.at = end;
    }

    /// Returns the number of hashes around the raw string that begins here, if there is one.
    fn hashes_of_raw(&self) -> Option<usize> {
        let before = &self.text[..self.at];
        let hashes = before.iter().rev().take_while(|&&b| b == b'#').count();
        let before = before[..before.len() - hashes].strip_suffix(b"r")?;
        let before = match before {
            [rest @ .., b'b' | b'c'] => rest,
            rest => rest,
        };
        let in_word = before.last().is_some_and(|&b| is_word(b));
        (!in_word).then_some(hashes)
    }

    /// Reads a character or a lifetime.
    fn quote(&mut self) {
        let rest = &self.text[self.at + 1..];
        let length = match rest {
            [b'\\', _, rest @ ..] => rest.iter().position(|&b| b == b'\'').map(|at| at + 2),
            [first, ..] => {
                let width = first.leading_ones().max(1) as usize;
                (rest.get(width) == Some(&b'\'')).then_some(width)
            }
            [] => None,
        };
        self.at += 1;
        if let Some(length) = length {
            self.code[self.at..self.at + length].fill(b' ');
            self.at += length + 1;
        }
    }

    /// Adds a piece with its inside, and blanks the covered range, after which the lexer continues.
    fn piece(&mut self, kind: Kind, inside: Range<usize>, covered: Range<usize>) {
        let end = covered.end;
        self.pieces.push(Piece {
            kind,
            line: self.line,
            inside,
            in_test: false,
        });
        for byte in &mut self.code[covered] {
            if *byte == b'\n' {
                self.line += 1;
            } else {
                *byte = b' ';
            }
        }
        self.at = end;
    }
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Finds the test-only items of `code`, with their attributes.
fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(") {
        let start = from + found;
        from = start + "#[cfg(".len();
        let condition = &code[from..];
        let is_test = condition.starts_with("test)") || condition.starts_with("all(test");
        if is_test && let Some(close) = condition.find(']') {
            from = item_end(code, from + close + 1);
            ranges.push(start..from);
        }
    }
    ranges
}

/// Returns the end of the item, field or expression that begins at `start`, possibly with more attributes.
fn item_end(code: &str, start: usize) -> usize {
    let bytes = code.as_bytes();
    let is_item = is_item(&code[start..]);
    let mut depth = 0usize;
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                if depth == 0 {
                    return at;
                }
                depth -= 1;
                if depth == 0 && *byte == b'}' {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            b',' if depth == 0 && !is_item => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}

/// Returns whether an item begins here: a field or an expression ends at a comma, and an item does not.
fn is_item(code: &str) -> bool {
    const ITEMS: [&str; 12] = [
        "fn", "mod", "use", "impl", "struct", "enum", "const", "static", "type", "trait", "unsafe",
        "async",
    ];
    let mut code = code.trim_start();
    while let Some(attribute) = code.strip_prefix("#[") {
        let end = attribute.find(']').map_or(attribute.len(), |at| at + 1);
        code = attribute[end..].trim_start();
    }
    if let Some(public) = code.strip_prefix("pub") {
        code = public.trim_start();
        if code.starts_with('(') {
            let end = code.find(')').map_or(code.len(), |at| at + 1);
            code = code[end..].trim_start();
        }
    }
    let end = code.bytes().position(|b| !is_word(b));
    ITEMS.contains(&&code[..end.unwrap_or(code.len())])
}
