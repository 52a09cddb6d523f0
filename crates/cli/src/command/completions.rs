//! `ubtrfs completions`: shell completions, generated from the command line's definition.
//!
//! The generators do not support the comma-separated list after `mount -o`. They get a marker in place of a
//! value. Code that completes a list then replaces the marker.

use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use ubtrfs_fuse::mount::words_to_complete;

use crate::presentation::console::Console;
use crate::program::Program;

/// Print the completions for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Shell that reads the completions
    shell: Shell,
}

/// The marker, which the generators get as the only value of `-o`.
const MARK: &str = "ubtrfs-mount-options";

impl Completions {
    pub(crate) fn run(&self, console: &mut Console, program: &Program) -> anyhow::Result<()> {
        let mut definition = (program.definition)().mut_subcommand("mount", |mount| {
            let marked = PossibleValuesParser::new([MARK]);
            mount.mut_arg("options", |options| options.value_parser(marked))
        });
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition, "ubtrfs", &mut script);
        let script = String::from_utf8_lossy(&script);
        let script = with_mount_options(self.shell, &script);
        Ok(std::io::Write::write_all(
            &mut console.out,
            script.as_bytes(),
        )?)
    }
}

fn with_mount_options(shell: Shell, script: &str) -> String {
    let words = words_to_complete().join(" ");
    match shell {
        Shell::Bash => {
            let marked = format!("COMPREPLY=($(compgen -W \"{MARK}\" -- \"${{cur}}\"))");
            let script = script.replace(&marked, "_ubtrfs_mount_options");
            let begin = "COMPREPLY=()\n";
            let script = script.replacen(begin, &format!("{begin}{BASH_BEGIN}"), 1);
            format!("{BASH_FUNCTION}\n{script}").replace("@WORDS@", &words)
        }
        Shell::Zsh => {
            let (head, body) = script.split_once('\n').unwrap_or((script, ""));
            let body = body.replace(&format!("({MARK})"), "_ubtrfs_mount_options");
            format!("{head}\n{ZSH_FUNCTION}\n{body}").replace("@WORDS@", &words)
        }
        Shell::Fish => {
            let marked = format!("\"{MARK}\\t''\"");
            let completed = "\"(__fish_append , (__ubtrfs_mount_options))\"";
            let script = script.replace(&marked, completed);
            format!("{FISH_FUNCTION}\n{script}").replace("@WORDS@", &words)
        }
        _ => script.replace(MARK, &words),
    }
}

/// The first lines of the function, before it processes other words.
const BASH_BEGIN: &str = "    _ubtrfs_in_image \"$1\" && return 0\n";

/// Readline may split words at colons, so `IMAGE:/PATH` is taken from the whole line.
const BASH_FUNCTION: &str = r#"_ubtrfs_in_image() {
    local line="${COMP_LINE:0:COMP_POINT}" word image dir name shown before=""
    word="${line##*[[:space:]]}"
    [[ "${word}" == ?*:/* ]] || return 1
    image="${word%%:/*}"
    dir="/${word#*:/}"
    name="${dir##*/}"
    dir="${dir%/*}/"
    [[ "${COMP_WORDBREAKS}" == *:* ]] || before="${image}:"
    [[ "${image}" != "~/"* ]] || image="${HOME}${image:1}"
    while IFS= read -r shown; do
        [[ "${shown}" != "${name}"* ]] || COMPREPLY+=("${before}${dir}$(printf '%q' "${shown}")")
    done < <("$1" --wait=0 ls -A "${image}:${dir}" 2>/dev/null </dev/null)
    compopt -o nospace +o default +o bashdefault 2>/dev/null
    return 0
}

_ubtrfs_mount_options() {
    local before="" last="${cur}"
    if [[ "${cur}" == *,* ]]; then
        before="${cur%,*},"
        last="${cur##*,}"
    fi
    COMPREPLY=($(compgen -P "${before}" -W "@WORDS@" -- "${last}"))
    compopt -o nospace 2>/dev/null
}
"#;

const ZSH_FUNCTION: &str = r#"
(( $+functions[_ubtrfs_mount_options] )) ||
_ubtrfs_mount_options() {
    local -a words_of_mount
    words_of_mount=(@WORDS@)
    _sequence compadd -S '' - -a words_of_mount
}
"#;

const FISH_FUNCTION: &str = r#"function __ubtrfs_mount_options
    string split ' ' '@WORDS@'
end
"#;
