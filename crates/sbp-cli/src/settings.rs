//! Settings of `sbp serve` from three places under the same names: flags, variables of the environment, and a file.
//!
//! A flag `--data-dir` is the variable `$SBP_DATA_DIR` and the key `data-dir`; for a few variables see `ALSO_OF_CLIENTS`.
//! Flags win over variables, and these over the file. What the file says is handed to the parser of the command line as if
//! it had been written there, so that each setting is read, checked and explained in one place.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use toml::{Table, Value};

use crate::args::Cli;
use crate::error::CliError;

/// The command whose settings these are.
const SERVE: &str = "serve";
/// Settings whose usual variables are those of clients: in a shell that is set up for these, a server would show a client's
/// certificate.
const ALSO_OF_CLIENTS: [&str; 3] = ["tls-ca", "tls-cert", "tls-key"];
/// The flags of `sbp serve` that are no settings.
const NO_SETTINGS: [&str; 3] = ["config", "print-config", "help"];

/// The command line with a variable for every setting.
pub(crate) fn command() -> Command {
    let mut command = unbuilt();
    // Flags of all commands become flags of each.
    command.build();
    command
}

/// The same, without what `help` adds to it.
pub(crate) fn command_without_help() -> Command {
    fn without(command: Command) -> Command {
        command.disable_help_subcommand(true).mut_subcommands(without)
    }
    let mut command = without(unbuilt());
    command.build();
    command
}

fn unbuilt() -> Command {
    Cli::command().mut_subcommand(SERVE, |serve| {
        serve.mut_args(|arg| match arg.get_long() {
            Some(long) if arg.get_env().is_none() && !NO_SETTINGS.contains(&long) => {
                let variable = variable(long);
                arg.env(variable).hide_env_values(true)
            }
            _ => arg,
        })
    })
}

fn variable(long: &str) -> String {
    let whose = if ALSO_OF_CLIENTS.contains(&long) { "SERVE_" } else { "" };
    format!("SBP_{whose}{}", long.replace('-', "_").to_uppercase())
}

/// What was asked for, or the text of `--print-config`.
#[derive(Debug)]
pub(crate) enum Asked {
    Run(Box<Cli>),
    Print(String),
}

/// Why arguments make no sense.
#[derive(Debug)]
pub(crate) enum Refused {
    Arguments(clap::Error),
    File(CliError),
}

impl From<clap::Error> for Refused {
    fn from(error: clap::Error) -> Self {
        Self::Arguments(error)
    }
}

/// Reads the command line, the environment, and the file that one of them names.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked, Refused> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let file = match command().ignore_errors(true).try_get_matches_from(&args) {
        Ok(told) => told.subcommand_matches(SERVE).and_then(|serve| {
            let path = serve.get_one::<PathBuf>("config")?.clone();
            Some((path, serve.clone()))
        }),
        // Help, version and what cannot be read at all: the second reading tells it.
        Err(_) => None,
    };
    let mut of_file = Vec::new();
    if let Some((path, told)) = &file {
        let added = from_file(path, told).map_err(Refused::File)?;
        of_file = added.names;
        args.extend(added.arguments);
    }
    let matches = command().try_get_matches_from(&args)?;
    if let Some(serve) = matches.subcommand_matches(SERVE)
        && serve.get_flag("print_config")
    {
        let path = file.as_ref().map(|(path, _)| path.as_path());
        return Ok(Asked::Print(print(serve, &of_file, path)));
    }
    Ok(Asked::Run(Box::new(Cli::from_arg_matches(&matches)?)))
}

/// What a file adds to the command line.
struct Added {
    /// The settings that it decides.
    names: Vec<String>,
    arguments: Vec<OsString>,
}

/// The settings of a file that neither a flag nor a variable decides.
fn from_file(path: &Path, told: &ArgMatches) -> Result<Added, CliError> {
    let wrong = |what: String| CliError::Usage(format!("{}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|source| CliError::File {
        path: path.to_owned(),
        source,
    })?;
    let table: Table = text.parse().map_err(|error| wrong(format!("{error}")))?;
    let command = command();
    let settings = settings(&command);
    let mut added = Added {
        names: Vec::new(),
        arguments: Vec::new(),
    };
    for (name, value) in table {
        let Some(arg) = settings.iter().find(|arg| arg.get_long() == Some(&name)) else {
            let known: Vec<_> = settings.iter().filter_map(|arg| arg.get_long()).collect();
            return Err(wrong(format!(
                "there is no setting {name:?}; there are {}",
                known.join(", ")
            )));
        };
        let arguments = arguments(arg, &name, value)
            .and_then(|arguments| check(&command, arguments))
            .map_err(|what| wrong(format!("{name}: {what}")))?;
        let decided = told.value_source(arg.get_id().as_str());
        if matches!(decided, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            continue;
        }
        added.names.push(name);
        added.arguments.extend(arguments);
    }
    Ok(added)
}

/// The settings of `sbp serve`, in the order of its help.
fn settings(command: &Command) -> Vec<&Arg> {
    let serve = command.find_subcommand(SERVE);
    let args = serve.into_iter().flat_map(Command::get_arguments);
    args.filter(|arg| arg.get_long().is_some_and(|long| !NO_SETTINGS.contains(&long)))
        .collect()
}

/// A setting of a file as the command line would say it.
fn arguments(arg: &Arg, name: &str, value: Value) -> Result<Vec<OsString>, String> {
    let one = |value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(is_so) => Ok(is_so.to_string()),
        other => Err(format!("{} is not a setting's value", other.type_str())),
    };
    let is_flag = matches!(arg.get_action(), ArgAction::SetTrue);
    let values = match value {
        Value::Boolean(is_so) if is_flag => {
            let flag = OsString::from(format!("--{name}"));
            return Ok(is_so.then_some(flag).into_iter().collect());
        }
        _ if is_flag => return Err("write true or false".to_owned()),
        Value::Array(values)
            if arg.get_value_delimiter().is_some() || matches!(arg.get_action(), ArgAction::Append) =>
        {
            values.into_iter().map(one).collect::<Result<Vec<_>, _>>()?
        }
        value => vec![one(value)?],
    };
    Ok(values
        .into_iter()
        .map(|value| OsString::from(format!("--{name}={value}")))
        .collect())
}

/// Lets the parser of the command line judge one setting by itself, so that what is wrong with it is told with its file.
fn check(command: &Command, arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let words = ["sbp", SERVE].into_iter().map(OsString::from).chain(arguments.clone());
    match command.clone().try_get_matches_from(words) {
        Err(error) if matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) => {
            let words = error.render().to_string();
            let first = words.lines().next().unwrap_or_default();
            Err(first.strip_prefix("error: ").unwrap_or(first).to_owned())
        }
        // What else it asks for is asked of all settings together.
        _ => Ok(arguments),
    }
}

/// The settings in force, as a file that says the same, and where each comes from.
fn print(serve: &ArgMatches, of_file: &[String], file: Option<&Path>) -> String {
    let command = command();
    let mut text = String::new();
    for arg in settings(&command) {
        let (id, long) = (arg.get_id().as_str(), arg.get_long().unwrap_or_default());
        let source = match serve.value_source(id) {
            _ if of_file.iter().any(|name| name == long) => file.map(|path| path.display().to_string()),
            Some(ValueSource::CommandLine) => Some(format!("--{long}")),
            Some(ValueSource::EnvVariable) => Some(format!("${}", variable(long))),
            Some(_) => Some("default".to_owned()),
            None => None,
        };
        let values: Vec<_> = serve
            .get_raw(id)
            .into_iter()
            .flatten()
            .map(|value| scalar(&value.to_string_lossy()))
            .collect();
        let value = match (arg.get_value_delimiter(), values.as_slice()) {
            (Some(_), _) if source.is_some() => Value::Array(values).to_string(),
            (_, [value]) => value.to_string(),
            _ => String::new(),
        };
        // Writing into a String cannot fail.
        let _ = match source {
            Some(source) => writeln!(text, "{long} = {value}  # {source}"),
            None => writeln!(text, "# {long} is not set"),
        };
    }
    text
}

/// A value as a file says it: numbers and truth values bare, everything else as text.
fn scalar(text: &str) -> Value {
    let as_number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
    as_number
        .map(Value::Integer)
        .or_else(|| text.parse::<bool>().ok().map(Value::Boolean))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}
