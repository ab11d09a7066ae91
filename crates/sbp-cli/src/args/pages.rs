//! `sbp completions` and `sbp man`

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp completions bash > /etc/bash_completion.d/sbp
  sbp completions zsh > \"${fpath[1]}/_sbp\"
  sbp completions fish > ~/.config/fish/completions/sbp.fish")]
pub(crate) struct Completions {
    /// For which shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp man --to /usr/local/share/man/man1         then: man sbp, man sbp-serve")]
pub(crate) struct Man {
    /// Directory to write into, a page for each command; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}
