//! Makes and reads SOAP messages of vSphere's API (vim25).
//!
//! A call is one element in an envelope. The answer also has one element, or a fault: a sentence for people
//! and, in its detail, an element whose type is the kind of fault.

use super::Place;
use roxmltree::{Document, Node};
use vsteer_core::{Fault, FaultKind};

/// The envelope around a call.
pub(super) fn envelope(body: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\">\
         <soapenv:Body>{body}</soapenv:Body></soapenv:Envelope>"
    )
}

/// Text escaped for XML. Characters that XML cannot contain become question marks.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\r' => out.push_str("&#13;"),
            '\t' | '\n' => out.push(c),
            c if (c as u32) < 0x20 || matches!(c as u32, 0xfffe | 0xffff) => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Why a call failed: the service's fault, and the same as vsteer's fault.
#[derive(Debug)]
pub(super) struct Refused {
    /// The type of the service's fault (`NotAuthenticated`); empty if the service did not answer the call.
    pub(super) kind: String,
    pub(super) fault: Fault,
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Fault {
        refused.fault
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused { kind: String::new(), fault }
    }
}

/// An answer that is not a fault.
#[derive(Debug)]
pub(super) struct Reply {
    text: String,
}

impl Reply {
    /// Parses an answer.
    ///
    /// # Errors
    /// The fault in the answer; `BadInput` if the answer does not come from vSphere.
    pub(super) fn of(place: &Place, status: u16, text: String) -> Result<Reply, Refused> {
        let foreign = |why: String| {
            Fault::new(FaultKind::BadInput, format!("cannot use the answer of {place}"))
                .because(why)
                .help("name a vCenter or an ESXi host")
        };
        let document =
            Document::parse(&text).map_err(|e| foreign(format!("status {status}, not valid XML: {e}")))?;
        let root = document.root_element();
        let fault = root.tag_name().name() == "Envelope";
        let body = root.children().find(|n| n.tag_name().name() == "Body");
        let Some(first) = body.and_then(|b| b.first_element_child()).filter(|_| fault) else {
            return Err(foreign(format!("status {status}, not a SOAP envelope")).into());
        };
        if first.tag_name().name() == "Fault" {
            return Err(refused(place, first));
        }
        if status != 200 {
            return Err(foreign(format!("status {status}")).into());
        }
        drop(document);
        Ok(Reply { text })
    }

    /// Reads the answer's element. `None` cannot happen, because [`Reply::of`] checked that the element
    /// exists.
    pub(super) fn read<T>(&self, read: impl FnOnce(Node<'_, '_>) -> T) -> Option<T> {
        let document = Document::parse(&self.text).ok()?;
        let body = document.root_element().children().find(|n| n.tag_name().name() == "Body")?;
        Some(read(body.first_element_child()?))
    }
}

/// Translates a fault of the service to a fault of vsteer.
fn refused(place: &Place, fault: Node<'_, '_>) -> Refused {
    let said = child_text(fault, "faultstring").unwrap_or_default();
    let detail = fault.children().find(|n| n.tag_name().name() == "detail");
    match detail.and_then(|d| d.first_element_child()) {
        Some(of) => told(place, &type_of(of), &said, of),
        None => told(place, "", &said, fault),
    }
}

/// The type that an element declares, otherwise its name.
fn type_of(node: Node<'_, '_>) -> String {
    let of_type = node.attributes().find(|a| a.name() == "type").map(|a| a.value());
    of_type.unwrap_or(node.tag_name().name()).trim_end_matches("Fault").to_owned()
}

/// The same for a failed task, whose error holds a fault and a sentence.
pub(super) fn failed_task(place: &Place, error: Node<'_, '_>) -> Refused {
    let said = child_text(error, "localizedMessage").unwrap_or_default();
    match error.children().find(|n| n.tag_name().name() == "fault") {
        Some(of) => told(place, &type_of(of), &said, of),
        None => told(place, "", &said, error),
    }
}

fn told(place: &Place, kind: &str, said: &str, fault: Node<'_, '_>) -> Refused {
    Refused { kind: kind.to_owned(), fault: as_ours(place, kind, said, fault) }
}

fn as_ours(place: &Place, kind: &str, said: &str, fault: Node<'_, '_>) -> Fault {
    let of = |class: FaultKind, what: String, help: &str| {
        let fault = Fault::new(class, what).help(help);
        if said.trim().is_empty() { fault } else { fault.because(said) }
    };
    match kind {
        "InvalidLogin" => of(
            FaultKind::NoPrivilege,
            format!("{place} refuses this user and password"),
            "check the password; write a user of a domain as user@domain",
        ),
        "NotAuthenticated" => {
            of(FaultKind::NoPrivilege, format!("{place}: the session has ended"), "run the command again")
        }
        "NoPermission" => {
            let needs = descendant(fault, "privilegeId").and_then(|n| n.text().map(str::to_owned));
            let needs = needs.unwrap_or_else(|| "that vSphere does not name".to_owned());
            of(
                FaultKind::NoPrivilege,
                format!("{place}: {} lacks the privilege {needs}", place.user),
                "give the user a role with that privilege on the object, or use another user",
            )
        }
        "InvalidPowerState" => of(
            FaultKind::Unsupported,
            format!(
                "{place}: vSphere cannot do this while the VM is in the power state {}",
                power_state(fault)
            ),
            "shut the VM down, apply the plan, start it again",
        ),
        "ManagedObjectNotFound" => of(
            FaultKind::NothingThere,
            format!("{place}: the object no longer exists"),
            "observe again, then make a new plan",
        ),
        "ConcurrentAccess" => of(
            FaultKind::Changed,
            format!("{place}: another user changed the VM at the same time"),
            "make a new plan",
        ),
        "TaskInProgress" => of(
            FaultKind::Failed,
            format!("{place}: another task of the VM has not finished"),
            "wait for that task, then run the command again",
        ),
        _ => {
            let fault = Fault::new(FaultKind::Failed, format!("{place} answers with the fault {kind}"));
            if said.trim().is_empty() { fault } else { fault.because(said) }
        }
    }
}

fn power_state(fault: Node<'_, '_>) -> String {
    text_of(fault, "existingState").unwrap_or_else(|| "that it is in".to_owned())
}

/// The text of an element's child of this name.
pub(super) fn child_text(of: Node<'_, '_>, name: &str) -> Option<String> {
    of.children().find(|n| n.tag_name().name() == name)?.text().map(str::to_owned)
}

/// The first descendant with this name.
pub(super) fn descendant<'a, 'input>(of: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    of.descendants().find(|n| n.tag_name().name() == name)
}

pub(super) fn text_of(of: Node<'_, '_>, name: &str) -> Option<String> {
    descendant(of, name)?.text().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> Place {
        Place { user: "root".into(), host: "esx".into(), port: 443 }
    }

    fn answer(body: &str) -> String {
        envelope(body)
    }

    fn fault(detail: &str) -> Fault {
        let body = format!(
            "<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>no &amp; no</faultstring>\
             <detail>{detail}</detail></soapenv:Fault>"
        );
        Reply::of(&place(), 500, answer(&body)).unwrap_err().fault
    }

    #[test]
    fn faults_have_classes() {
        let login =
            fault("<InvalidLoginFault xmlns=\"urn:vim25\" xsi:type=\"InvalidLogin\"></InvalidLoginFault>");
        assert_eq!((login.kind, login.cause.as_deref()), (FaultKind::NoPrivilege, Some("no & no")));
        let expired = fault("<NotAuthenticatedFault xmlns=\"urn:vim25\" xsi:type=\"NotAuthenticated\"/>");
        assert!(expired.what.contains("session has ended"), "{}", expired.what);
        let right = fault(
            "<NoPermissionFault xmlns=\"urn:vim25\"><privilegeId>System.View</privilegeId></NoPermissionFault>",
        );
        assert!(right.what.contains("System.View") && right.kind == FaultKind::NoPrivilege, "{}", right.what);
        assert_eq!(fault("<RuntimeFaultFault/>").kind, FaultKind::Failed);
        let on = fault(
            "<InvalidPowerStateFault xmlns=\"urn:vim25\"><existingState>poweredOn</existingState></InvalidPowerStateFault>",
        );
        assert!(on.what.contains("poweredOn"), "{}", on.what);
    }

    #[test]
    fn a_tasks_fault_is_read_as_a_calls() {
        let text = "<error><fault xsi:type=\"ConcurrentAccess\"/><localizedMessage>changed</localizedMessage></error>";
        let reply = Reply::of(&place(), 200, answer(text)).unwrap();
        let refused = reply.read(|e| failed_task(&place(), e)).unwrap();
        assert_eq!((refused.kind.as_str(), refused.fault.kind), ("ConcurrentAccess", FaultKind::Changed));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for (status, text) in [(200, "<html>hello</html>"), (404, "not found"), (200, ""), (503, "<a/>")] {
            let refused = Reply::of(&place(), status, text.to_owned()).unwrap_err();
            assert_eq!(refused.fault.kind, FaultKind::BadInput, "{text:?}");
        }
        assert!(Reply::of(&place(), 500, answer("<LoginResponse/>")).is_err());
    }

    proptest! {
        /// Any name or password survives, except characters that XML cannot contain.
        #[test]
        fn text_survives(text in any::<String>()) {
            let message = answer(&format!("<a>{}</a>", escaped(&text)));
            let reply = Reply::of(&place(), 200, message).unwrap();
            let back = reply.read(|a| a.text().unwrap_or_default().to_owned()).unwrap();
            let can = |c: char| {
                let lost = (c as u32) < 0x20 && !matches!(c, '\t' | '\n' | '\r') || matches!(c as u32, 0xfffe | 0xffff);
                if lost { '?' } else { c }
            };
            prop_assert_eq!(back, text.chars().map(can).collect::<String>());
        }

        #[test]
        fn any_answer_is_survived(text in any::<String>(), status in any::<u16>()) {
            let _ = Reply::of(&place(), status, text);
        }
    }
}
