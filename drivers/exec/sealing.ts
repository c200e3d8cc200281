/**
 * The last program before a task's command: it makes the system calls that put the process into its root, user and limits, and
 * then becomes the command. No program of util-linux (2.38) loads a seccomp filter or a Landlock ruleset, or changes the root
 * without needing programs in the new one; Perl, which every Debian has, makes any system call (ADR 39).
 *
 * SE1: a failed call ends the process before the command starts, with a message that the driver's start returns.
 */
const system = {
  x64: {
    mount: 165,
    chroot: 161,
    umount2: 166,
    pivot_root: 155,
    prctl: 157,
    capset: 126,
    setgroups: 116,
    setresuid: 117,
    setresgid: 119,
    setpgid: 109,
    setns: 308,
    seccomp: 317,
    landlock_create_ruleset: 444,
    landlock_add_rule: 445,
    landlock_restrict_self: 446,
  },
  arm64: {
    mount: 40,
    chroot: 51,
    umount2: 39,
    pivot_root: 41,
    prctl: 167,
    capset: 91,
    setgroups: 159,
    setresuid: 147,
    setresgid: 149,
    setpgid: 154,
    setns: 268,
    seccomp: 277,
    landlock_create_ruleset: 444,
    landlock_add_rule: 445,
    landlock_restrict_self: 446,
  },
} as const;

type SystemCall = keyof (typeof system)["x64"];

/**
 * Each step is a line: a word and its arguments, numbers in decimal and texts as `x` and hex. A failure is reported with the
 * step's first argument. `announce` does what a shell does in other tasks: it writes the process to the run file and to the
 * driver. `fork` follows a join of a PID namespace, which only takes effect for children. The command leads its own process
 * group, in the terminal's foreground if there is one (0x5410: TIOCSPGRP). Its parent stays to reap it, since a namespace
 * ends only when all its processes are reaped, which not every machine's init does; on SIGTERM the parent kills the group.
 */
const script = `use strict;
my ($plan, @command) = @ARGV;
my ($own, $ruleset, @kept) = ("");
if (open(my $file, "<", "/proc/self/stat")) { $own = <$file>; close($file); }
my ($run, $news);
sub fail {
  my $text = "cannot $_[0]: $!\\n";
  $news ? syswrite($news, "fail $text") : syswrite(STDERR, $text);
  exit 125;
}
$SIG{PIPE} = "IGNORE";
for my $line (split /\\n/, $plan) {
  my ($does, @words) = split / /, $line;
  my ($what, @values) = map { /^x(.*)/ ? pack("H*", $1) : $_ + 0 } @words;
  if ($does eq "call") { syscall(shift(@values), @values) >= 0 or fail($what); }
  elsif ($does eq "folder") { -d $values[0] or mkdir($values[0], $values[1]) or fail($what); }
  elsif ($does eq "link") { -l $values[1] or symlink($values[0], $values[1]) or fail($what); }
  elsif ($does eq "file") {
    -e $values[0] or open(my $file, ">>", $values[0]) or fail($what);
  }
  elsif ($does eq "enter") { chdir($values[0]) or fail($what); }
  elsif ($does eq "env") { $ENV{$what} = $values[0]; }
  elsif ($does eq "driver") {
    open($run, ">>&=", 3) or exit 125;
    open($news, ">>&=", 4) or exit 125;
  }
  elsif ($does eq "open") {
    open(my $file, "<", $values[0]) or fail($what);
    push @kept, $file;
  }
  elsif ($does eq "join") {
    my $file = shift @kept;
    syscall($values[0], fileno($file), 0) >= 0 or fail($what);
    close($file);
  }
  elsif ($does eq "fork") {
    pipe(my $wait, my $go) or fail($what);
    my $child;
    $SIG{TERM} = sub { kill("KILL", -$child) if $child };
    $SIG{HUP} = sub { kill("HUP", -$child) if $child };
    $child = fork();
    defined($child) or fail($what);
    if ($child != 0) {
      close($wait);
      setpgrp($child, $child);
      { local $SIG{TTOU} = "IGNORE"; ioctl(STDIN, 0x5410, pack("i", $child)); }
      close($go);
      $SIG{$_} = "IGNORE" for qw(INT QUIT);
      1 while waitpid($child, 0) != $child;
      if (my $signal = $? & 127) { $SIG{$_} = "DEFAULT" for qw(INT QUIT TERM HUP PIPE); kill($signal, $$); sleep(1); }
      exit($? >> 8);
    }
    close($go);
    <$wait>;
    close($wait);
    $SIG{$_} = "DEFAULT" for qw(TERM HUP);
  }
  elsif ($does eq "ruleset") {
    $ruleset = syscall($values[0], $values[1], length($values[1]), 0);
    $ruleset >= 0 or fail($what);
  }
  elsif ($does eq "rule") {
    sysopen(my $file, $values[1], 0x280000) or fail($what);
    my $rights = pack("Q<l<", -d $values[1] ? $values[2] : $values[3], fileno($file));
    syscall($values[0], $ruleset, 1, $rights, 0) >= 0 or fail($what);
    close($file);
  }
  elsif ($does eq "restrict") { syscall($values[0], $ruleset, 0) >= 0 or fail($what); }
  elsif ($does eq "filter") {
    my $program = pack("S x![P] P", length($values[1]) / 8, $values[1]);
    syscall($values[0], 1, 0, $program) >= 0 or fail($what);
  }
  elsif ($does eq "announce") {
    syswrite($run, "main $own");
    syswrite($news, "main $own");
    close($run);
    close($news);
    undef $news;
  }
  else { $! = 22; fail("do $does"); }
}
$SIG{PIPE} = "DEFAULT";
exec { $command[0] } @command;
syswrite(STDERR, "$command[0]: $!\\n");
exit 126;`;

type Word = string | number | bigint | Uint8Array;

function word(of: Word): string {
  if (typeof of === "number" || typeof of === "bigint") return String(of);
  return `x${(typeof of === "string" ? Buffer.from(of, "utf8") : Buffer.from(of)).toString("hex")}`;
}

/** The steps, in order. Each `what` completes the sentence "cannot …". */
export class SealingPlan {
  readonly #lines: string[] = [];
  readonly #calls: Readonly<Record<SystemCall, number>>;

  /** Throws for a processor whose system calls are not known here. */
  constructor(architecture: string = process.arch) {
    const calls = (system as Readonly<Record<string, Readonly<Record<SystemCall, number>>>>)[architecture];
    if (calls === undefined) throw new Error(`cannot isolate tasks on ${architecture} processors`);
    this.#calls = calls;
  }

  #add(does: string, what: string, ...words: readonly Word[]): this {
    this.#lines.push([does, word(what), ...words.map(word)].join(" "));
    return this;
  }

  call(what: string, name: SystemCall, ...args: readonly Word[]): this {
    // The kernel reads a text up to a null byte; Perl's own buffers end in one.
    return this.#add("call", what, this.#calls[name], ...args);
  }

  folder(path: string, mode = 0o755): this {
    return this.#add("folder", `make the directory ${path}`, path, mode);
  }

  link(target: string, path: string): this {
    return this.#add("link", `make the link ${path}`, target, path);
  }

  file(path: string): this {
    return this.#add("file", `make the file ${path}`, path);
  }

  enter(path: string): this {
    return this.#add("enter", `change to the directory ${path}`, path);
  }

  env(name: string, value: string): this {
    return this.#add("env", name, value);
  }

  /** Joins namespaces by their files, all of which are opened before the first join. */
  join(files: readonly string[]): this {
    for (const path of files) this.#add("open", `open the namespace ${path}`, path);
    for (const path of files) this.#add("join", `join the namespace ${path}`, this.#calls.setns);
    return this;
  }

  fork(): this {
    return this.#add("fork", "start a process");
  }

  /** Before every step that may fail: reports failures to the driver. */
  toDriver(): this {
    return this.#add("driver", "reach the driver");
  }

  announce(): this {
    return this.#add("announce", "notify the driver");
  }

  ruleset(what: string, handled: Uint8Array): this {
    return this.#add("ruleset", what, this.#calls.landlock_create_ruleset, handled);
  }

  /** Rights below a directory, and those of a path that is a file. */
  rule(path: string, rights: { readonly folder: number; readonly file: number }): this {
    const what = `show the task ${path}`;
    return this.#add("rule", what, this.#calls.landlock_add_rule, path, rights.folder, rights.file);
  }

  restrict(what: string): this {
    return this.#add("restrict", what, this.#calls.landlock_restrict_self);
  }

  filter(what: string, program: Uint8Array): this {
    return this.#add("filter", what, this.#calls.seccomp, program);
  }

  /** The program and its arguments to put before a command. */
  prefix(perl: string): readonly string[] {
    return [perl, "-e", script, "--", this.#lines.join("\n")];
  }
}
