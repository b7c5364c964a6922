//! Do the units start, stop, come back, and survive a reboot and a power cut?

use super::On;
use super::PLAN;
use crate::installed::host::Ran;
use vsteer_core::Fault;

/// Requests of a made-up web server in `tick`, on a pCPU that both VMs share: 300 ms each, a quarter above the level.
const LEVEL: &str = r#"set -eu
cat > /root/requests.sh <<'END'
while sleep 0.05; do
    for vm in spin tick; do
        printf '10.0.0.1 - - [%s] "GET / HTTP/1.1" 200 10 "-" "-" 0.300\n' "$(date '+%d/%b/%Y:%H:%M:%S %z')" >> /var/log/$vm.log
    done
done
END
cat > /etc/vsteer/web.toml <<'END'
period = "4s"
[[vm]]
name = "tick"
log = "/var/log/tick.log"
format = "nginx"
mean = "240ms"
[[vm]]
name = "spin"
log = "/var/log/spin.log"
format = "nginx"
mean = "60s"
END
touch /var/log/spin.log /var/log/tick.log
virsh -q vcpupin spin 0 0 && virsh -q vcpupin tick 0 0
systemd-run -q --unit=requests sh /root/requests.sh
systemctl start vsteer-steer@web"#;

/// A program that asks the service on its socket. It is in Perl, which every Debian has.
const ASK: &str = r#"cat > /usr/local/bin/ask <<'END'
#!/usr/bin/perl
use IO::Socket::UNIX;
my $s = IO::Socket::UNIX->new(Peer => "/run/vsteer/serve.sock") or die "cannot connect: $!\n";
print $s "GET $ARGV[0] HTTP/1.0\r\nHost: localhost\r\n\r\n";
$s->flush;
print while <$s>;
END
chmod 755 /usr/local/bin/ask; usermod -aG vsteer admin"#;

impl On<'_> {
    /// The service: who may ask on its socket, and what its threads may do.
    pub(super) fn serves(&mut self) -> Result<(), Fault> {
        self.host.run(ASK)?;
        self.claim_within(
            60.0,
            "the service starts, and says so once it observes",
            "systemctl start vsteer-serve && systemctl is-active vsteer-serve && stat -c '%A %U %G' /run/vsteer/serve.sock",
            |r| r.out == "active\nsrw-rw---- root vsteer",
        )?;
        let names_both =
            |r: &Ran| r.is_ok() && r.out.contains("vm=\"spin\"") && r.out.contains("vm=\"tick\"");
        // In a new session: the groups of one that exists are those of its login.
        self.claim(
            "a member of group vsteer reads metrics of both VMs",
            "runuser -u admin -- ask /metrics",
            names_both,
        )?;
        self.claim_as("plain", "another user does not", "ask /metrics", |r| {
            !r.is_ok() && r.err.contains("Permission denied")
        })?;
        let threads = "for t in /proc/$(systemctl show -P MainPID vsteer-serve)/task/*; do echo $(cat $t/comm) $(sed -n 's/^CapEff:\t//p' $t/status); done | grep -v '^observe ' | sed 's/.* //' | sort -u";
        self.claim("threads that answer clients have no capability", threads, |r| {
            r.out == "0000000000000000"
        })?;
        self.claim(
            "stopped, it leaves no socket",
            "systemctl stop vsteer-serve; systemctl show -P Result vsteer-serve; ls /run/vsteer",
            |r| r.out == "success",
        )?;
        Ok(())
    }

    pub(super) fn records(&mut self) -> Result<(), Fault> {
        self.claim_within(
            90.0,
            "the recorder starts, and says so once it records",
            "systemctl start vsteer-record && systemctl is-active vsteer-record",
            |r| r.out == "active",
        )?;
        self.claim_soon(
            20,
            "it has recorded both VMs",
            "vsteer replay /var/lib/vsteer-record/current.vsteer",
            |r| r.out.contains("spin") && r.out.contains("tick"),
        )?;
        self.claim(
            "a restart keeps the former recording",
            "systemctl restart vsteer-record && ls /var/lib/vsteer-record",
            |r| r.out.contains("current.vsteer") && r.out.contains("former.vsteer"),
        )?;
        self.claim_soon(
            30,
            "a recording can be read while it is made",
            "vsteer diagnose /var/lib/vsteer-record/current.vsteer",
            Ran::is_ok,
        )?;
        self.host.run("systemctl kill -s KILL vsteer-record")?;
        self.claim_soon(
            90,
            "killed, systemd starts it again",
            "systemctl is-active vsteer-record; systemctl show -P NRestarts vsteer-record",
            |r| r.out == "active\n1",
        )?;
        self.claim(
            "the recording that was cut short can be read",
            "vsteer diagnose /var/lib/vsteer-record/former.vsteer",
            Ran::is_ok,
        )?;
        self.claim(
            "it is enabled",
            "systemctl enable -q vsteer-record && systemctl is-enabled vsteer-record",
            |r| r.out == "enabled",
        )?;
        Ok(())
    }

    pub(super) fn reboots(&mut self) -> Result<(), Fault> {
        self.host.reboot()?;
        let running = "systemctl is-active vsteer-record; systemctl --failed --no-legend; virsh -q list --name | sort | xargs";
        self.claim(
            "after a reboot the recorder runs, no unit failed, and the VMs are there",
            running,
            |r| r.out == "active\nspin tick",
        )?;
        self.claim(
            "the recording before the reboot can be read",
            "vsteer diagnose /var/lib/vsteer-record/former.vsteer",
            Ran::is_ok,
        )?;
        Ok(())
    }

    pub(super) fn loses_power(&mut self) -> Result<(), Fault> {
        self.claim(
            "a plan is applied again",
            &format!("{PLAN} >/dev/null && vsteer apply /root/plan.json --yes && sync"),
            Ran::is_ok,
        )?;
        self.host.power_cut()?;
        self.claim(
            "after a power cut the recorder runs and no unit failed",
            "systemctl is-active vsteer-record; systemctl --failed --no-legend",
            |r| r.out == "active",
        )?;
        self.claim_soon(
            60,
            "it has recorded the VMs that started after it",
            "vsteer replay /var/lib/vsteer-record/current.vsteer",
            |r| r.out.contains("spin") && r.out.contains("tick"),
        )?;
        self.claim("the journal names the plan that was applied", "vsteer rollback --list", |r| {
            r.is_ok() && r.out.contains("plan ")
        })?;
        self.claim("rollback closes it", "vsteer rollback", Ran::is_ok)?;
        self.shares("the weight is the former one", "100")?;
        self.claim(
            "the recording that the power cut ended can be read",
            "vsteer replay /var/lib/vsteer-record/former.vsteer",
            Ran::is_ok,
        )?;
        Ok(())
    }

    pub(super) fn steers(&mut self) -> Result<(), Fault> {
        self.claim("the steering unit starts", LEVEL, Ran::is_ok)?;
        let weights = "virsh schedinfo spin | sed -n 's/^cpu_shares *: //p'; virsh schedinfo tick | sed -n 's/^cpu_shares *: //p'";
        let raised = format!(
            "for i in $(seq 30); do sleep 3; [ \"$(virsh schedinfo tick | sed -n 's/^cpu_shares *: //p')\" = 100 ] || break; done; \
             {weights}; journalctl -u vsteer-steer@web -o cat | tail -4"
        );
        self.claim("it moves weight to the VM that misses its level", &raised, |r| {
            let weight = |n: usize| r.out.lines().nth(n).and_then(|l| l.parse::<u64>().ok());
            matches!((weight(0), weight(1)), (Some(spin), Some(tick)) if spin < 100 && tick > 100)
        })?;
        self.host.run("systemctl kill -s KILL vsteer-steer@web")?;
        self.claim_soon(8, "killed, its watchdog gives the weights back", weights, |r| r.out == "100\n100")?;
        self.claim_soon(30, "systemd starts it again", "systemctl is-active vsteer-steer@web", |r| {
            r.out == "active"
        })?;
        self.claim(
            "stopped, it gives the weights back, and no plan is open",
            &format!(
                "systemctl stop vsteer-steer@web; {weights}; vsteer rollback --list >/dev/null; echo $?"
            ),
            |r| r.out == "100\n100\n3",
        )?;
        self.host.run("systemctl stop requests; rm /etc/vsteer/web.toml; virsh -q vcpupin spin 0 0-1; virsh -q vcpupin tick 0 0-1")?;
        Ok(())
    }
}
