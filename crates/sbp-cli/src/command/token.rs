//! `sbp token`

use std::time::SystemTime;

use sbp_server::access::{AuthFile, Entry, Moment, Quota, TokenDigest, new_token};
use serde_json::json;

use crate::args::{CreateToken, ListTokens, RevokeToken, Token, TokenAction};
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn run(asked: Token, terminal: &mut Terminal) -> Result<(), CliError> {
    match asked.action {
        TokenAction::Create(create) => make(create, terminal),
        TokenAction::List(list) => show(&list, terminal),
        TokenAction::Revoke(revoke) => take_away(&revoke),
    }
}

fn make(asked: CreateToken, terminal: &mut Terminal) -> Result<(), CliError> {
    let is_shown = asked.certificate.is_none() && asked.subject.is_none();
    let token = is_shown.then(new_token).transpose();
    let token = token.map_err(CliError::system("get random bytes"))?;
    let now = Moment::from(SystemTime::now());
    let mut quota = Quota::default();
    for limit in &asked.quota {
        quota.set(limit).map_err(|error| CliError::Usage(error.to_string()))?;
    }
    let entry = Entry {
        name: asked.name,
        allow: asked.allow,
        sha256: token.as_ref().map(TokenDigest::of),
        certificate: asked.certificate,
        subject: asked.subject,
        created: Some(now),
        expires: asked.expires.map(|time| now.after(time)),
        quota,
    };
    entry.check().map_err(CliError::Usage)?;
    let mut file = AuthFile::change(&asked.file.auth)?;
    file.add(&entry);
    file.write()?;
    if let Some(token) = token {
        terminal.line(token.secret())?;
    }
    terminal.flush()
}

fn show(asked: &ListTokens, terminal: &mut Terminal) -> Result<(), CliError> {
    let entries = AuthFile::read(&asked.file.auth)?;
    if asked.json {
        for entry in &entries {
            terminal.line(json!({
                "name": entry.name,
                "allow": entry.allow.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "token": entry.sha256.map(|digest| digest.to_string()),
                "certificate": entry.certificate,
                "subject": entry.subject,
                "created": entry.created.map(|at| at.to_string()),
                "expires": entry.expires.map(|at| at.to_string()),
                "quota": entry.quota,
            }))?;
        }
        return terminal.flush();
    }
    let rows = entries.iter().map(|entry| {
        let grants: Vec<_> = entry.allow.iter().map(ToString::to_string).collect();
        let moment = |at: Option<Moment>| at.map(|at| at.to_string()).unwrap_or_default();
        let known_by = match (&entry.sha256, &entry.certificate, &entry.subject) {
            (Some(digest), ..) => format!("token {digest}"),
            (_, Some(name), _) => format!("certificate {name}"),
            (.., Some(subject)) => format!("subject {subject}"),
            _ => String::new(),
        };
        vec![
            entry.name.clone(),
            known_by,
            grants.join(" "),
            moment(entry.created),
            moment(entry.expires),
            entry.quota.to_string(),
        ]
    });
    terminal.table(
        &["NAME", "KNOWN BY", "MAY", "CREATED", "EXPIRES", "QUOTA"],
        rows.collect(),
    )
}

fn take_away(asked: &RevokeToken) -> Result<(), CliError> {
    let mut file = AuthFile::change(&asked.file.auth)?;
    let is_meant = |entry: &Entry| {
        let is_token = |digits: &String| entry.sha256.is_some_and(|digest| digest.to_string() == *digits);
        entry.name == asked.name && asked.token.as_ref().is_none_or(is_token)
    };
    if file.remove(is_meant) == 0 {
        let (name, path) = (&asked.name, asked.file.auth.display());
        return Err(CliError::Usage(format!(
            "{path} has no such token of {name}; see sbp token list"
        )));
    }
    file.write()?;
    // It was written all the same; whoever revokes wants to know that no server reads the file as it is.
    AuthFile::read(&asked.file.auth)?;
    Ok(())
}
