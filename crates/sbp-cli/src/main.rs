//! The `sbp` command.

fn main() -> std::process::ExitCode {
    let code = sbp_cli::run(std::env::args_os());
    std::process::ExitCode::from(u8::try_from(code).unwrap_or(1))
}
