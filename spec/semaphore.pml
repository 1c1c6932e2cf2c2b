/* Tables, rules T1 to T8: one object with a size, a token counter, and entries under sessions,
 * of which some hold slots and the others wait in order. A fair lock is a table of one slot. In
 * a lock for readers and writers, a writer takes all slots.
 *
 * There are N processes with C callers each. A session is valid for its process until it runs
 * out; then anybody may end it for good (D3; session.pml has how) and remove its entries. One
 * write carries all that is due in its process: own entries that are not wanted go, entries of
 * sessions that it knows to be over go, waiters are promoted, new entries join. The write is
 * conditional on the version that was read. It lands late, or never.
 *
 * The following makes no difference, and is left out:
 *  - answers. A success tells what a read would have told at the instant at which the write
 *    landed, and any other answer tells nothing. So there is no answer, and a process may
 *    write again over the version that it has read;
 *  - versions that are gone. They never come back (T1), so a write over one of them does not
 *    land, and neither does a second copy. With LATE such writes are kept, and do not land;
 *  - reads that tell a caller nothing new, and calls and releases between writes. They happen
 *    together with the write that they lead to;
 *  - sessions that are over and not yet ended. They are ended when their entries are removed.
 *
 * Properties
 *   V  the leases in use never take more slots than there are
 *   T  the token of each grant is above those of all grants before
 *   F  no entry gets slots, or a place in the queue, ahead of an earlier one of a valid session
 *   O  an entry of a valid session is one that its process wants, or is about to remove
 *   L  an entry of a valid session keeps its place and its slots, but for its own process
 *   S  no live waiter is first in the queue and fits; and if an entry ahead of a live caller is of a
 *      session that is over, some live caller watches such a session
 *   Z  the size stays, only processes that expect it have entries, and at most LINE wait
 */
#ifndef N
#define N 2
#endif
#ifndef C
#define C 2
#endif
#ifndef MAXV
#define MAXV 4            /* writes that are sent */
#endif
#ifndef SIZE
#define SIZE 2
#endif
#ifndef LINE
#define LINE 2            /* a table with so many waiters is full */
#endif
#ifndef EXPIRES
#define EXPIRES 1         /* sessions that run out */
#endif
#ifndef WITNESS
#define WITNESS 0
#endif
#define WIT(x, c) assert(!(WITNESS == x && (c)))    /* a witness: must be reached */
#define MAXE 7            /* entries that there may be at a time */
#define MAXS (N + EXPIRES)
#define CAP (SIZE + LINE + 1)

/* a caller */
#define IDLE 0
#define WANTS 1           /* its entry joins, or waits */
#define HOLDS 2
#define LEAVES 3          /* has released or given up; not settled yet */

typedef Table { byte e[CAP]; byte in; byte held; byte tok; byte size }; /* in order; as sets. Size 0: absent */
typedef Write { byte over; Table t };   /* over: the version that it is conditional on; 0: none */
typedef Process {
  byte s;                 /* its session */
  byte ph[C]; byte e[C];  /* its callers, their entries */
  byte open;              /* its entries that a write over the present version may bring */
  Write q[2]              /* its writes that are on the way */
};
Process p[N];
Table t, d;               /* the table; what a write makes of it */
byte ver = 1, sent, granted, nexts = N + 1;
byte es[MAXE+1], w[MAXE+1];             /* an entry's session, and weight */
bit valid[MAXS+1];

#define SELF p[_pid-1]
#define BIT(x) (1 << (x))
#define HAS(m, x) (((m) >> (x)) & 1)
#define SILENT(x) (!valid[es[x]])
#ifdef SIZES              /* the second process expects one slot less */
#define EXPECTS(i) (SIZE - (i))
#define FIRST 1
#else
#define EXPECTS(i) SIZE
#define FIRST (sent > 0 || _pid == 1)   /* processes are alike: the first is the first to write */
#endif
#define AGREES(i) (t.size == 0 || t.size == EXPECTS(i))
#if defined(ANYSIZE) || defined(OWNSIZE) /* mutants: joins a table of another size; goes by its own */
#define MAYJOIN(i) 1
#else
#define MAYJOIN(i) AGREES(i)
#endif
#ifdef OWNSIZE
#define SLOTS EXPECTS(_pid-1)
#else
#define SLOTS d.size
#endif
#ifdef LATEEND            /* mutant: used until the release is seen to have landed */
#define USES(i, c) (p[i].ph[c] == HOLDS || p[i].ph[c] == LEAVES)
#else
#define USES(i, c) (p[i].ph[c] == HOLDS)
#endif
#if defined(UNCOND) || defined(SAMEBYTES)
#define LATE
#endif
#ifdef LATE
byte dups = 1;
#endif
#ifdef SAMEBYTES          /* mutant: no write ID, so the same bytes are the same version */
int body[MAXV+3]; byte bodies = 1;
#endif
#if defined(LATE) || defined(DELETES)
#define FROMZERO          /* else tokens are counted from the last one */
#endif

hidden byte a, b, c, k, m, u, x, used, waits, wants, leaves, stuck, seen;

inline copy(to, from) {
  m = 0; do :: m < CAP -> to.e[m] = from.e[m]; m++ :: else -> break od;
  to.in = from.in; to.held = from.held; to.tok = from.tok; to.size = from.size
}
inline clear(tab) {
  m = 0; do :: m < CAP -> tab.e[m] = 0; m++ :: else -> break od;
  tab.in = 0; tab.held = 0; tab.tok = 0; tab.size = 0
}
inline drop(r) { r.over = 0; clear(r.t) }
inline known() {          /* a: the entries in the table, on the way to it, and of callers */
  a = t.in; k = 0;
  do
  :: k < N ->
     a = a | p[k].q[0].t.in | p[k].q[1].t.in; m = 0;
     do :: m < C -> a = a | BIT(p[k].e[m]); m++ :: else -> break od; k++
  :: else -> break
  od
}
inline tidy() {           /* nothing is kept of the others, and their numbers are used again */
  known(); k = 1;
  do
  :: k <= MAXE -> if :: HAS(a, k) :: else -> es[k] = 0; w[k] = 0 fi; k++
  :: else -> break
  od; k = 0
}

/* ---- what a write makes of the table ---- */
#ifdef SKIPHEAVY          /* mutant: a light one passes a heavy one that waits */
#define FITS(x) (used + w[x] <= SLOTS)
#else
#define FITS(x) (waits == 0 && used + w[x] <= SLOTS)
#endif
#ifdef JOINPAST           /* mutant: a new one that fits holds at once, though others wait */
#define FITSNEW(x) (used + w[x] <= SLOTS)
#else
#define FITSNEW(x) FITS(x)
#endif
#ifdef JOINFULL           /* mutant: joins a full table */
#define ROOM (waits <= LINE)
#else
#define ROOM (waits < LINE)
#endif
#ifdef CLEARLIVE          /* mutant: entries of others go, dead or alive */
#define GOES(x) (HAS(leaves, x) || es[x] != SELF.s)
#else
#define GOES(x) (HAS(leaves, x) || HAS(over, es[x]))
#endif
#ifdef NOPROMOTE          /* mutants: nobody is promoted; only when a holder leaves; only when an own entry goes */
#define PROMOTES 0
#else
#ifdef HOLDERONLY
#define PROMOTES (leaves & t.held)
#else
#ifdef OWNERONLY
#define PROMOTES (leaves & t.in)
#else
#define PROMOTES 1
#endif
#endif
#endif

inline put(x) { d.e[m] = x; m++; d.in = d.in | BIT(x) }
inline grant(x) {
  d.held = d.held | BIT(x); used = used + w[x];
#ifdef ONETOKEN           /* mutant: one token for all that are granted a slot in one write */
  d.tok = t.tok + 1
#else
  d.tok++
#endif
}
inline compose(over) {    /* over: the sessions that are known to be over */
  d.size = (t.size == 0 -> EXPECTS(_pid-1) : t.size); d.tok = t.tok;
  leaves = 0; c = 0;
  do :: c < C -> if :: SELF.ph[c] == LEAVES -> leaves = leaves | BIT(SELF.e[c]) :: else fi; c++ :: else -> break od;
  m = 0; k = 0; used = 0; waits = 0;
  do                      /* holders come first: when a waiter's turn comes, used is known */
  :: k < CAP && t.e[k] != 0 ->
     x = t.e[k]; k++;
     if
     :: GOES(x)
     :: else ->
        put(x);
        if
        :: HAS(t.held, x) -> d.held = d.held | BIT(x); used = used + w[x]
        :: !HAS(t.held, x) && FITS(x) && PROMOTES -> grant(x);
#ifdef SAMETOKEN          /* mutant: promotion takes no token */
           d.tok--
#endif
        :: else -> waits++
        fi
     fi
  :: else -> break
  od;
  c = 0;
  do
  :: c < C ->
     x = SELF.e[c];
     if
     :: SELF.ph[c] != WANTS || HAS(t.in, x)
     :: else ->
        if
        :: FITSNEW(x) -> put(x); grant(x)
        :: !FITSNEW(x) && ROOM ->
           put(x); waits++;
#ifdef OVERTAKE           /* mutant: joins ahead of the last waiter */
           if :: waits > 1 -> d.e[m-1] = d.e[m-2]; d.e[m-2] = x :: else fi
#endif
        :: else           /* full: it is refused */
        fi
     fi; c++
  :: else -> break
  od;
#ifdef DELETES            /* mutant: the last to leave deletes the table */
  if :: d.in == 0 -> d.tok = 0; d.size = 0 :: else fi;
#endif
  c = 0
}
#define CHANGED (d.in != t.in || d.held != t.held)
#define TOUCH ((leaves & SELF.open & ~t.in) != 0) /* may yet land: only another write settles that */
#define SENT(r) (r.over == ver && r.t.in == d.in && r.t.held == d.held)

inline send() {
  if
  :: SELF.q[0].over == 0 -> SELF.q[0].over = ver; copy(SELF.q[0].t, d)
  :: else ->              /* of three, the first is lost */
     if :: SELF.q[1].over != 0 -> SELF.q[0].over = SELF.q[1].over; copy(SELF.q[0].t, SELF.q[1].t) :: else fi;
     SELF.q[1].over = ver; copy(SELF.q[1].t, d)
  fi;
  SELF.open = SELF.open | (d.in & ~t.in); sent++;
  c = 0;
  do
  :: c < C ->
     if
#ifdef HOPE               /* mutant: held once the write that says so is sent */
     :: SELF.ph[c] == WANTS && HAS(d.held, SELF.e[c]) -> SELF.ph[c] = HOLDS
#endif
#ifdef NOREADBACK         /* mutant: settled once the write that removes it is sent */
     :: SELF.ph[c] == LEAVES && HAS(t.in, SELF.e[c]) -> SELF.ph[c] = IDLE; SELF.e[c] = 0
#endif
     :: else
     fi; c++
  :: else -> break
  od
}
#ifdef NOTOUCH            /* mutant: settled once the entry is not seen */
#define SETTLED(x) (!HAS(t.in, x))
#else
#define SETTLED(x) (!HAS(t.in | SELF.open, x))
#endif
inline look() {
  c = 0;
  do
  :: c < C ->
     if
     :: SELF.ph[c] == LEAVES && SETTLED(SELF.e[c]) -> SELF.ph[c] = IDLE; SELF.e[c] = 0
     :: SELF.ph[c] == WANTS && HAS(t.held, SELF.e[c]) -> SELF.ph[c] = HOLDS
     :: else
     fi; c++
  :: else -> break
  od; c = 0
}

proctype proc() {
  byte i, over;
  do
  :: d_step { look(); tidy() }
#ifdef OLDANSWER          /* mutant: a late answer, which shows an older version, settles */
  :: d_step { t.size != 0 && SELF.open != 0 -> SELF.open = 0; look(); tidy() }
#endif

  :: atomic { sent < MAXV && MAYJOIN(_pid-1) && FIRST ->
       d_step { look() }
       do                                      /* what its callers want now */
       :: i < C ->
          if
          :: skip
          :: SELF.ph[i] == IDLE ->
             d_step { known(); k = 1; do :: k <= MAXE && HAS(a, k) -> k++ :: else -> break od;
               if :: k <= MAXE -> SELF.ph[i] = WANTS; SELF.e[i] = k; es[k] = SELF.s; w[k] = 1 :: else fi; k = 0 }
             if :: SELF.e[i] != 0 && EXPECTS(_pid-1) > 1 -> w[SELF.e[i]] = 2 :: skip fi
#ifdef NOSETTLE           /* mutant: a caller that gives up is forgotten */
          :: SELF.ph[i] == WANTS -> SELF.ph[i] = IDLE; SELF.e[i] = 0
#else
#ifndef LATEEND
          :: SELF.ph[i] == WANTS -> SELF.ph[i] = LEAVES
#endif
#endif
          :: SELF.ph[i] == HOLDS -> SELF.ph[i] = LEAVES
          fi; i++
       :: else -> break
       od; i = 1;
       do                                      /* which sessions it knows to be over */
       :: i < nexts ->
          if
          :: skip
          :: !valid[i] -> over = over | BIT(i)
#ifdef KILLLIVE           /* mutant: ended though it is valid */
          :: valid[i] && i != SELF.s -> over = over | BIT(i)
#endif
          fi; i++
       :: else -> break
       od; i = 0;
       d_step {
         compose(over);
         if :: (CHANGED || TOUCH) && !SENT(SELF.q[0]) && !SENT(SELF.q[1]) -> send() :: else fi;
         clear(d); look(); tidy() }
       over = 0 }

  /* the session runs out, and with it all its leases; the process begins another */
  :: d_step { nexts <= MAXS && sent > 0 && valid[SELF.s] ->
       valid[SELF.s] = 0; SELF.s = nexts; nexts++; SELF.open = 0;
#ifndef EARLY
       valid[SELF.s] = 1;
#endif
#ifndef NOCLOCK           /* mutant: no look at the session when the lease is used */
       c = 0; do :: c < C -> SELF.ph[c] = IDLE; SELF.e[c] = 0; c++ :: else -> break od;
#endif
       tidy() }
#ifdef EARLY              /* mutant: entries name a session that is not there until now */
  :: d_step { !valid[SELF.s] -> valid[SELF.s] = 1 }
#endif
  od
}

/* ---- a write reaches the store ---- */
#define R p[i].q[sl]
/* entries that are new, that go, that are promoted */
#define NEW (R.t.in & ~t.in)
#define GONE (t.in & ~R.t.in)
#define UP (R.t.held & ~t.held & t.in)
inline witness() {        /* a: entries of sessions that are over; b: heavy ones; wants: the writer's */
  a = 0; b = 0; leaves = 0; wants = 0; x = 1;
  do
  :: x <= MAXE ->
     a = a | (SILENT(x) << x); b = b | ((w[x] > 1) << x); wants = wants | ((es[x] == p[i].s) << x); x++
  :: else -> break
  od;
  c = 0; do :: c < C -> if :: p[i].ph[c] == LEAVES -> leaves = leaves | BIT(p[i].e[c]) :: else fi; c++ :: else -> break od;
  waits = 0; x = 0; k = 0;                     /* x: the first in the queue */
  do
  :: k < CAP && t.e[k] != 0 ->
     if :: HAS(t.held, t.e[k]) :: else -> waits++; if :: x == 0 -> x = t.e[k] :: else fi fi; k++
  :: else -> break
  od;
  WIT(1, UP & (UP - 1));                       /* two are promoted at once */
  WIT(2, (UP & b & ~a) && (R.t.in & ~R.t.held & ~b & ~a));  /* a heavy one is, a light one goes on waiting */
  WIT(3, (GONE & a) && (UP & ~a));             /* a dead one goes and a live one is promoted */
  WIT(4, (GONE & leaves) && NEW && UP);        /* one write releases, joins and promotes */
  WIT(5, NEW & leaves);                        /* a given-up entry lands */
  WIT(6, leaves & p[i].open & ~t.in & ~R.t.in & p[i].q[1-sl].t.in);    /* a touch keeps it from landing */
  WIT(7, NEW & a);                             /* an entry lands whose session is over */
  WIT(8, UP & a);                              /* one is promoted whose session is over */
  WIT(9, (GONE & a & ~t.held) && x != 0 && !HAS(a | wants | GONE | UP, x)); /* one goes from inside the queue */
  WIT(10, (GONE & a) && waits == LINE && !(t.in & wants) && NEW)       /* from a full queue, by one that was refused */
}
inline land() {
#if WITNESS
  witness();
#endif
  k = 0; a = 0; b = 0; m = 0; waits = 0;       /* a: new slots; b: a live one waits; m: a new one was passed */
  do
  :: k < CAP && R.t.e[k] != 0 ->
     x = R.t.e[k]; k++;
     assert(!(m && HAS(t.in, x) && !SILENT(x)));                               /* F */
     if :: HAS(t.in, x) :: else -> m = 1 fi;
     if
     :: HAS(R.t.held, x) -> if :: HAS(t.held, x) :: else -> a++; assert(!b) fi /* F */
     :: else -> waits++; if :: SILENT(x) :: else -> b = 1 fi
     fi
  :: else -> break
  od;
  assert(waits <= LINE);                                                       /* Z */
#ifndef DELETES           /* the harm is T */
  assert(t.size == 0 || R.t.size == t.size);                                   /* Z */
#endif
  assert(R.t.tok >= granted + a || a == 0); if :: a -> granted = R.t.tok :: else fi;  /* T */
  k = 0;
  do
  :: k < CAP && t.e[k] != 0 ->
     x = t.e[k]; k++;
     assert(HAS(R.t.in, x) || SILENT(x) || es[x] == p[i].s);                   /* L */
     assert(!HAS(t.held & R.t.in, x) || HAS(R.t.held, x))                      /* L */
  :: else -> break
  od;
  copy(t, R.t);
#ifdef SAMEBYTES
  body[0] = t.tok; k = 0;
  do :: k < CAP -> body[0] = (body[0] << 4) + (t.e[k] << 1) + HAS(t.held, t.e[k]); k++ :: else -> break od;
  ver = 2;                                     /* 1: the absent one */
  do :: ver <= bodies && body[ver] != body[0] -> ver++ :: else -> break od;
  if :: ver > bodies -> bodies = ver; body[ver] = body[0] :: else fi;
  body[0] = 0;
#else
#ifdef LATE
  ver++;
#endif
#endif
#ifndef FROMZERO
  t.tok = 0; granted = 0;
#endif
  k = 0;
  do
  :: k < N ->
     p[k].open = 0;                            /* its next look is at another version */
#ifndef LATE
     drop(p[k].q[0]); drop(p[k].q[1]);
#endif
     k++
  :: else -> break
  od
}
#ifdef UNCOND             /* mutant: no condition */
#define LANDS (R.over != 0)
#else
#define LANDS (R.over == ver)
#endif
proctype wire(byte i, sl) {
  do
#ifdef LATE
  :: d_step { LANDS && dups > 0 -> dups--; land(); tidy() }
  :: d_step { LANDS -> land(); drop(R); tidy() }
#else
  :: d_step { LANDS -> land(); tidy() }
#endif
  od
}

/* ---- what holds at any instant ---- */
#ifdef WATCHONE           /* mutant: the first in the queue watches one holder only */
#define WATCHED (k == 1)
#else
#define WATCHED 1
#endif
#ifdef FULLBLIND          /* mutant: a caller that was refused watches nobody */
#define SEES(y) (HAS(t.in, y) || waits < LINE)
#else
#define SEES(y) 1
#endif
/* The caller with entry y watches the session of the waiter before it, or those of all holders
 * if nobody waits before it. If a full table has refused it, it watches as if it had joined. */
inline watches(y) {
  waits = 0; u = 0; a = 0; b = 0; m = 0; k = 0; /* a: one before it is silent; b: a holder is; m: the waiter before it */
  do
  :: k < CAP && t.e[k] != 0 && t.e[k] != y ->
     x = t.e[k]; k++;
     a = a | SILENT(x);
     if
     :: HAS(t.held, x) -> u = u + w[x]; if :: WATCHED -> b = b | SILENT(x) :: else fi
     :: else -> waits++; m = x
     fi
  :: else -> break
  od;
  assert(!(HAS(t.in, y) && waits == 0 && u + w[y] <= t.size));                 /* S */
  stuck = stuck | a;
  if
#ifndef WATCHNOHOLDER     /* mutant: the first in the queue watches no holder */
  :: SEES(y) && m == 0 && b -> seen = 1
#endif
#ifndef WATCHNOWAITER     /* mutant: the others watch nobody */
  :: SEES(y) && m != 0 && SILENT(m) -> seen = 1
#endif
  :: HAS(leaves, m) -> seen = 1                /* it goes, and then there is another to be watched */
  :: else
  fi;
  WIT(11, !HAS(t.in, y) && waits == LINE && !a)                                /* a queue of live ones is full */
}
proctype watch() {
  byte i;
  do
  :: d_step {
       used = 0; wants = 0; leaves = 0; stuck = 0; seen = 0; i = 0;
       do
       :: i < N ->
          c = 0;
          do
          :: c < C ->
             if :: USES(i, c) -> used = used + w[p[i].e[c]] :: else fi;
             wants = wants | BIT(p[i].e[c]);
             if :: p[i].ph[c] == LEAVES -> leaves = leaves | BIT(p[i].e[c]) :: else fi;
#ifndef OWNSIZE           /* the harm is V */
             assert(!HAS(t.in, p[i].e[c]) || AGREES(i));                       /* Z */
#endif
             WIT(12, p[i].ph[c] == WANTS && !AGREES(i));                       /* another size is expected, and it stays out */
             c++
          :: else -> break
          od; i++
       :: else -> break
       od;
       assert(t.size == 0 || used <= t.size);                                  /* V */
       k = 0;
       do
       :: k < CAP && t.e[k] != 0 -> assert(SILENT(t.e[k]) || HAS(wants, t.e[k])); k++  /* O */
       :: else -> break
       od;
       i = 0;
       do
       :: i < N ->
          c = 0;
          do
          :: c < C -> if :: p[i].ph[c] == WANTS && !HAS(t.held, p[i].e[c]) && MAYJOIN(i) -> watches(p[i].e[c]) :: else fi; c++
          :: else -> break
          od; i++
       :: else -> break
       od;
       assert(!stuck || seen);                                                 /* S */
       i = 0 }
  od
}

init {
  byte i;
  atomic {
    do :: i < N -> p[i].s = i + 1; valid[i+1] = 1; run proc(); i++ :: else -> break od; i = 0;
    do :: i < N -> run wire(i, 0); run wire(i, 1); i++ :: else -> break od; i = 0;
    run watch() }
}
