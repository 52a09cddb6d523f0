//! Scripts of commands on one open volume.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::process::{empty_volume, location, succeed, ubtrfs};

fn run<I, S>(image: &Path, options: I, script: &str) -> Output
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut child = ubtrfs()
        .arg("shell")
        .args(options)
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before the end of the script.
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

const NO_OPTIONS: [&str; 0] = [];

#[test]
fn a_script_writes_and_reads_what_it_wrote() {
    let (scratch, image) = empty_volume();
    let file = scratch.path().join("a file");
    std::fs::write(&file, "contents\n").unwrap();
    let script = format!(
        "# Names are quoted as in a shell.\n\
         mkdir -p 'dir one'/sub   # two words that are one\n\
         \n\
         cd 'dir one'\n\
         pwd\n\
         cp 'host:{}' \"sub/it's\"\n\
         ln -s $'new\\nline' link\n\
         cat sub/it\\'s \\\n  sub/it\\'s\n\
         ls\n\
         sync\n\
         cd ..\n\
         mv 'dir one' dir\n\
         stat --format json /dir/sub/../sub\n\
         exit\n\
         not a command that is ever read\n",
        file.display()
    );
    let output = run(&image, NO_OPTIONS, &script);
    assert_eq!(stderr(&output), "");
    assert!(output.status.success());
    let text = stdout(&output);
    let rest = text.strip_prefix("/dir one\ncontents\ncontents\nlink\nsub\n");
    let json: serde_json::Value = serde_json::from_str(rest.expect(text)).unwrap();
    assert_eq!(json["stat"][0]["type"], "directory");
    let copy = location(&image, "dir/sub/it's");
    assert_eq!(succeed(["cat".into(), copy]), b"contents\n");
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn an_error_ends_a_script_with_its_line() {
    let (_scratch, image) = empty_volume();
    let script = "mkdir a\n\n# a comment\nmkdir 'a'\nmkdir b\n";
    let output = run(&image, NO_OPTIONS, script);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "ERROR: line 4: cannot make directory '/a': file exists\n"
    );
    assert_eq!(succeed(["ls".into(), location(&image, "")]), b"a\n");

    let script = "mkdir a\nnonsense\nls --nonsense\nls 'never closed\nmkdir b\n";
    let output = run(&image, ["--keep-going"], script);
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<&str> = stderr(&output)
        .lines()
        .filter(|l| l.starts_with("ERROR"))
        .collect();
    let places: Vec<&str> = lines.iter().map(|line| &line[..14]).collect();
    assert_eq!(
        places,
        [
            "ERROR: line 1:",
            "ERROR: line 2:",
            "ERROR: line 3:",
            "ERROR: line 4:"
        ]
    );
    // The quotation continued to the end.
    assert_eq!(succeed(["ls".into(), location(&image, "")]), b"a\n");
}

#[test]
fn commands_of_a_shell_stay_in_its_volume() {
    let (_scratch, image) = empty_volume();
    let refused = |script: &str, message: &str| {
        let output = run(&image, NO_OPTIONS, script);
        assert_eq!(output.status.code(), Some(1), "{script}");
        assert!(
            stderr(&output).contains(message),
            "{script}: {}",
            stderr(&output)
        );
    };
    for command in ["mkfs x", "mount x y", "check x", "shell x", "man x"] {
        refused(command, "is not a command of the shell");
    }
    refused("ls --device x /", "the shell's volume is open already");
    refused("cp - x", "standard input is the shell's own");
    refused("cp host:a host:b", "is in a volume");
    refused("cd /none", "cannot enter '/none'");
    let output = run(&image, ["--read-only"], "ls /\nmkdir x\n");
    assert!(stderr(&output).contains("--read-only"));
    let help = run(&image, NO_OPTIONS, "help\nhelp mkdir\n");
    assert!(help.status.success());
    let commands = stdout(&help)
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"));
    let names = commands
        .skip(1)
        .map_while(|line| line.split_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        let help = run(&image, NO_OPTIONS, &format!("help {name}\n"));
        assert!(help.status.success(), "{name}: {}", stderr(&help));
    }
    for word in ["mkdir", "sync", "exit", "--parents"] {
        assert!(stdout(&help).contains(word), "{word}");
    }
    assert!(!stdout(&help).contains("umount"));
}

#[test]
fn reading_shells_share_an_image() {
    let (_scratch, image) = empty_volume();
    let mut child = ubtrfs()
        .args(["shell", "--read-only"])
        .arg(&image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut script = child.stdin.take().unwrap();
    script.write_all(b"pwd\n").unwrap();
    let mut answer = [0; 2];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut answer).unwrap();
    succeed(["ls".into(), location(&image, "")]);
    drop(script);
    assert!(child.wait().unwrap().success());
}

#[test]
fn lines_take_and_refuse_what_the_command_line_does() {
    let (_scratch, image) = empty_volume();
    let script = "subvolume create -q a\nrm -v nothing\nfilesystem defragment a\n\
                  mkdir --format json b\nsubvolume create -i 0/5 c\nmkdir d\n";
    let output = run(&image, ["--keep-going"], script);
    assert_eq!(stdout(&output), "");
    let lines: Vec<&str> = stderr(&output).lines().collect();
    assert_eq!(
        lines[1..],
        [
            "ERROR: line 3: 'filesystem defragment' is not supported by ubtrfs",
            "ERROR: line 4: output format json is unsupported for this command",
            "ERROR: line 5: -i is not supported: ubtrfs does not write quota groups",
        ]
    );
    // The format option of a whole script applies to its listings.
    let output = ubtrfs()
        .args(["--format", "json", "shell"])
        .arg(&image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            let mut input = child.stdin.take().unwrap();
            input.write_all(b"mkdir e\nls\n")?;
            drop(input);
            child.wait_with_output()
        })
        .unwrap();
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["ls"].as_array().unwrap().len(), 3);
}

/// A shell in a terminal, which script(1) provides.
struct AtTerminal {
    child: std::process::Child,
    said: Vec<u8>,
}

impl AtTerminal {
    fn of(image: &Path) -> Option<AtTerminal> {
        let program = env!("CARGO_BIN_EXE_ubtrfs");
        // Without `exec`, dash waits in the foreground too, and dies of Ctrl-C.
        let command = format!("exec {program} shell {}", image.display());
        let child = std::process::Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(child) = child else {
            ubtrfs_sim::skip("no script(1)");
            return None;
        };
        let said = Vec::new();
        Some(AtTerminal { child, said })
    }

    /// Reads until the shell has printed this many prompts.
    fn prompts(&mut self, count: usize) {
        let out = self.child.stdout.as_mut().unwrap();
        let seen = |said: &[u8]| said.windows(4).filter(|at| at == b":/> ").count();
        while seen(&self.said) < count {
            let mut byte = [0];
            let read = std::io::Read::read(out, &mut byte).unwrap();
            assert_eq!(read, 1, "{}", String::from_utf8_lossy(&self.said));
            self.said.push(byte[0]);
        }
    }

    fn types(&mut self, keys: &[u8]) {
        let mut keyboard = self.child.stdin.as_ref().unwrap();
        keyboard.write_all(keys).unwrap();
    }
}

#[test]
fn ctrl_c_at_a_prompt_drops_the_line_and_no_change() {
    let (_scratch, image) = empty_volume();
    let Some(mut shell) = AtTerminal::of(&image) else {
        return;
    };
    shell.prompts(1);
    shell.types(b"mkdir /before\n");
    shell.prompts(2);
    shell.types(b"mkdir /half\x03");
    shell.prompts(3);
    shell.types(b"mkdir /after\n");
    shell.prompts(4);
    shell.types(b"\x04");
    let status = shell.child.wait().unwrap();
    assert!(status.success(), "{status}");
    let listed = succeed(["ls".as_ref(), image.as_os_str()]);
    assert_eq!(String::from_utf8_lossy(&listed), "after\nbefore\n");
}

#[test]
fn end_of_the_terminal_commits() {
    let (_scratch, image) = empty_volume();
    let Some(mut shell) = AtTerminal::of(&image) else {
        return;
    };
    shell.prompts(1);
    shell.types(b"mkdir /kept\n");
    shell.prompts(2);
    // Killing script(1) closes the terminal, and its shell gets SIGHUP.
    shell.child.kill().unwrap();
    shell.child.wait().unwrap();
    // The next command waits for the lock of the shell that is ending.
    let listed = succeed(["ls".as_ref(), image.as_os_str()]);
    assert_eq!(String::from_utf8_lossy(&listed), "kept\n");
}
