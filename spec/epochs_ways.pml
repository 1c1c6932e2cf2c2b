/* Layout "epochs", whole: one file per number, the highest counts, and the two
 * ways to renew.
 *
 * way "touch"  (default, needs If-Match)
 *   renew      overwrite one's own file n, if its version is the one last known
 *   release    overwrite it as over, on the same condition
 *   take over  file n unchanged for TTL + m: overwrite it as over, if its
 *              version is exactly the one watched; then create n + 1
 * way "next"   (-DNEXT, needs If-None-Match and LIST only)
 *   renew      create n + 1;   release: create n + 1, over
 *   take over  the highest file n unchanged for TTL + m: create n + 1
 * both
 *   claim      the highest file n is over, or there is none: create n + 1 at once
 *   create     only if absent; counts once a LIST that shows that very write
 *              shows it as the highest (in way "next" for renewals as well)
 *   answer     missing or a refusal: a GET decides, by the version (write ID)
 *   validity   from before the sending of the write that is counted, for TTL
 *   ended      a lease of way "touch" that has ended is not renewed any more:
 *              an answer, or a GET, that comes after its end counts for nothing
 *   released   earlier writes are forgotten when a release is sent; seen again,
 *              they are one's own dead lease, over without patience
 *
 * Network: a write may be delayed without bound, dropped, delivered twice, its
 * answer lost; a candidate may stop waiting at any moment.  The duplicate of a
 * create bears the same version: on S3 a version hashes the body alone.
 * Collection (-DGCOLD): any file below the highest may vanish at any time.
 * Candidates pause, crash and start again as new incarnations.
 * Time: ticks; a holder's timer runs DL ticks late, a follower's DF ticks early.
 *
 * Reading is one step: LIST and GET of the highest, or a GET of the file that is
 * held, observed or was to be created.  A LIST whose GET comes late is such a
 * read followed by a GET of the observed file.  A listing in ascending order,
 * page by page, shows the file that was the highest when the listing passed it:
 * it is enough that LIST is in ascending order.
 *
 * Properties
 *   V   at most one valid lease at any instant                      check()
 *   P1  a create that counts was, when it landed, above every number that had
 *       ever been created, and counts once: so numbers are used by one
 *       incarnation, for one lease, and grow                        count()
 *   C   (-DVIEW) the answer "unchanged" to the conditional GET of a held file
 *       means that it is still the highest
 *
 * What can never matter again is cleared, versions are numbered in the order of
 * a fixed walk, and a number that nobody can name any more is taken out, those
 * above it moving down.  So MAXE bounds the numbers that are alive at one time,
 * not the numbers used; MAXV bounds the writes that are sent.
 */
#ifndef N
#define N 2
#endif
#ifndef TTL
#define TTL 2
#endif
#ifndef ML
#define ML 1
#endif
#ifndef MF
#define MF 1
#endif
#ifndef DL
#define DL 1
#endif
#ifndef DF
#define DF 1
#endif
#ifndef MAXV
#define MAXV 4
#endif
#ifndef MAXE
#define MAXE 4             /* at most 4: see Net */
#endif
#ifndef DUPS
#define DUPS 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef WITNESS
#define WITNESS 0
#endif
#define WIT(x, c) assert(!(WITNESS == x && (c)))    /* a witness: must be reached */

#define CREATE  1    /* file e, held, if absent */
#define TOUCH   2    /* file e, held, if its version is expv */
#define MARK    3    /* file e, over, if its version is expv: a takeover */
#define RELEASE 4    /* the same of one's own */
#define FREE    5    /* file e, over, if absent */

#define NEWV (2*MAXE + 8*N + 1)    /* the version of a new write, until tidy() numbers it */
#define OVERV 200                  /* the version of a file that is over: no request names it */
#define COUNTED 255

#if defined(NEXT)
#define TOUCHES(i) false
#elif defined(MIXED)       /* candidate 0 touches, candidate 1 creates the next */
#define TOUCHES(i) (i == 0)
#else
#define TOUCHES(i) true
#endif

typedef File { byte ver; bit next; bit touched };   /* ver == 0: absent */
typedef Req { bit used; byte mem; byte kind; byte e; byte expv; byte nver; byte rem };
                                     /* mem: 1 seen again it counts, 2 seen again it is a dead lease of mine */
typedef Node {
  bit hold; byte e; byte ver; byte rem;            /* the lease */
  byte chk;                                        /* slot+1: that create landed; slot+3: and LIST showed it the highest */
  bit seen; byte oe; byte ov; bit onext; byte wt;  /* the file observed; oe == 0: there is none */
  byte cur; byte resp;                             /* slot+1 waited for; 1 done, 2 refused */
#ifdef VIEW
  byte lst; byte lstv;                             /* LIST's answer: number+1, version */
#endif
#ifdef GETSEND
  bit asked; byte waited;
#endif
  Req q[2] };
Node n[N];
File f[MAXE+1];
byte first[MAXE+1];     /* ghost: the version that created the number above all others */
byte hi;                /* the highest number that has a file */
byte sent, dups = DUPS, crashes = CRASHES;
hidden byte as[NEWV+1]; /* scratch of tidy() */
#if WITNESS == 1 || WITNESS == 3
byte last;              /* ghost: the last write that ended a file: 10+i a mark, 20+i a release of candidate i */
#else
#define last 0
#endif

#define ME n[_pid]
#define LIVE (TTL - ML + DL)
#define WAIT (TTL + MF - DF)
#define VALID(x) (n[x].hold && n[x].rem > 0)
#define IDLE (ME.cur == 0 && ME.chk == 0)
#define CANSEND (IDLE && sent < MAXV && (!ME.q[0].used || !ME.q[1].used))
#define OVER(x) (x == 0 || f[x].ver == OVERV)
#define CLAIMABLE (ME.oe == 0 || ME.ov == OVERV)
#ifdef NOPATIENCE          /* mutant: a held file that was seen once is taken over */
#define PATIENT true
#else
#define PATIENT (ME.wt == 0)
#endif
#ifdef GETSEND             /* mutant: patience counts from the sending of the GET */
#define PATIENCE (WAIT > ME.waited -> WAIT - ME.waited : 0)
#else
#define PATIENCE WAIT
#endif
#if defined(NOMARK)        /* mutant: the next is created beside a file that is not over */
#define MARKFIRST false
#elif defined(NAMED)       /* the file names the way in which it is renewed */
#define MARKFIRST (!ME.onext)
#else
#define MARKFIRST (TOUCHES(_pid))
#endif
#ifdef REVIVE              /* mutant: a lease that has ended is renewed */
#define RUNS true
#else
#define RUNS (ME.rem > 0)
#endif
#ifdef FROMRESP            /* mutant: validity counts from the answer */
#define REMOF(k) LIVE
#else
#define REMOF(k) ME.q[k].rem
#endif

inline clr(x, y) { n[x].q[y].mem = 0; n[x].q[y].kind = 0; n[x].q[y].e = 0; n[x].q[y].expv = 0; n[x].q[y].nver = 0; n[x].q[y].rem = 0 }
inline forget() { ME.seen = 0; ME.oe = 0; ME.ov = 0; ME.onext = 0; ME.wt = 0 }
inline unmem() { ME.q[0].mem = 0; ME.q[1].mem = 0; ME.q[0].rem = 0; ME.q[1].rem = 0 }
inline unlease() { ME.hold = 0; ME.e = 0; ME.ver = 0; ME.rem = 0 }
inline drop() { unlease(); unmem() }
inline check() { d_step { j = 0; do :: j < N -> assert(!(j != _pid && VALID(j) && VALID(_pid))); j++ :: else -> break od; j = 0 } }   /* V */

#define LOST(x, y) (n[x].q[y].kind != 0 && !n[x].q[y].used && n[x].cur != y + 1 && n[x].chk != y + 1 && n[x].chk != y + 3 && \
  !(n[x].q[y].mem != 0 && f[n[x].q[y].e].ver == n[x].q[y].nver))
#define CANCOUNT(x, y, m) (n[x].q[y].mem == 1 && n[x].q[y].kind == CREATE && n[x].q[y].e == m && n[x].q[y].nver == first[m])
#ifdef VIEW
#define LISTED(x, m) (n[x].lst == m + 1)
#else
#define LISTED(x, m) false
#endif
#define NAMES(x, m) ((n[x].seen && (n[x].oe == m || n[x].oe + 1 == m)) || (n[x].hold && (n[x].e == m || n[x].e + 1 == m)) || \
  (n[x].q[0].kind != 0 && n[x].q[0].e == m) || (n[x].q[1].kind != 0 && n[x].q[1].e == m) || LISTED(x, m))
#define MOVE(x, y) f[x].ver = f[y].ver; f[x].next = f[y].next; f[x].touched = f[y].touched
#define EMPTIED(x) f[x].ver = 0; f[x].next = 0; f[x].touched = 0
#define DOWN(v, m) if :: v > m -> v-- :: else fi
#define RENUMBER(v) if :: v != 0 && v <= NEWV -> if :: as[v] == 0 -> b++; as[v] = b :: else fi; v = as[v] :: else fi
inline tidy(a, b) {
  d_step {
  /* attempts that are neither under way nor in the store */
  a = 0;
  do
  :: a < N -> b = 0;
     do
     :: b < 2 ->
        if :: !n[a].q[b].used -> n[a].q[b].expv = 0 :: else fi;
        if :: LOST(a, b) -> clr(a, b) :: else fi; b++
     :: else -> break
     od; a++
  :: else -> break
  od;
  /* first creations that nobody can count any more */
  a = 1;
  do
  :: a <= MAXE ->
     if
     :: first[a] != 0 && first[a] != COUNTED -> b = 0;
        do :: b < N && !CANCOUNT(b, 0, a) && !CANCOUNT(b, 1, a) -> b++ :: else -> break od;
        if :: b == N -> first[a] = COUNTED :: else fi
     :: else
     fi; a++
  :: else -> break
  od;
  /* numbers below the highest that nobody can name any more */
  a = 1;
  do
  :: a < hi ->
     b = 0; do :: b < N && !NAMES(b, a) -> b++ :: else -> break od;
     if
     :: b < N -> a++
     :: else ->
        b = 0;
        do
        :: b < N -> DOWN(n[b].e, a); DOWN(n[b].oe, a); DOWN(n[b].q[0].e, a); DOWN(n[b].q[1].e, a);
#ifdef VIEW
           DOWN(n[b].lst, a + 1);
#endif
           b++
        :: else -> break
        od;
        b = a; do :: b < hi -> MOVE(b, b + 1); first[b] = first[b+1]; b++ :: else -> break od;
        EMPTIED(hi); first[hi] = 0; hi--
     fi
  :: else -> break
  od;
  /* versions are compared and nothing else */
  b = 0;
  a = 1; do :: a <= MAXE -> RENUMBER(f[a].ver); RENUMBER(first[a]); a++ :: else -> break od;
  a = 0;
  do
  :: a < N -> RENUMBER(n[a].ver); RENUMBER(n[a].ov);
     RENUMBER(n[a].q[0].expv); RENUMBER(n[a].q[0].nver); RENUMBER(n[a].q[1].expv); RENUMBER(n[a].q[1].nver);
#ifdef VIEW
     RENUMBER(n[a].lstv);
#endif
     a++
  :: else -> break
  od;
  a = 0; do :: a <= NEWV -> as[a] = 0; a++ :: else -> break od;
  a = 0; b = 0 } }

/* the create of slot k counts */
inline count(k) {
  assert(first[ME.q[k].e] == ME.q[k].nver);                                /* P1 */
  first[ME.q[k].e] = COUNTED;
  WIT(1, last == 10 + _pid);
  WIT(3, last >= 20 && last != 20 + _pid);
  WIT(7, ME.hold);
  WIT(8, !ME.hold && ME.seen && !CLAIMABLE);
  ME.hold = 1; ME.e = ME.q[k].e; ME.ver = ME.q[k].nver; ME.rem = REMOF(k);
#ifndef NOFORGET
  ME.q[k].mem = 0; ME.q[k].rem = 0;
#endif
  forget(); check() }
inline landed(k) {
#if defined(NOLIST)        /* mutant: a create that landed counts without a LIST */
  count(k)
#elif defined(NORENLIST)   /* mutant: one that renews does */
  if :: ME.hold -> count(k) :: else -> ME.chk = k + 1 fi
#else
  ME.chk = k + 1
#endif
}
/* the touch of slot k is known to have landed */
inline renewed(k) {
  if
  :: RUNS -> WIT(2, true); ME.ver = ME.q[k].nver; ME.rem = REMOF(k);
#ifndef NOFORGET
       ME.q[k].mem = 0; ME.q[k].rem = 0;
#endif
       check()
  :: else -> drop()
  fi }
#ifdef BYNUMBER            /* mutant: the number that I tried is held, so it is mine */
#define SAME(k) (f[h].ver != 0 && !OVER(h))
#else
#define SAME(k) (ME.q[k].nver == f[h].ver)
#endif
#define MINE(k) (ME.q[k].mem == 1 && ME.q[k].e == h && SAME(k) && \
  ((ME.q[k].kind == CREATE && !(ME.hold && ME.e >= h)) || (ME.q[k].kind == TOUCH && ME.hold && ME.e == h && ME.ver != f[h].ver)))
#define MYDEAD(k) (ME.q[k].mem == 2 && ME.q[k].e == h && ME.q[k].nver == f[h].ver)
inline own(k) {
#ifdef FROMGET             /* mutant: what a GET shows as mine counts from the GET */
  ME.q[k].rem = LIVE;
#endif
  if
  :: ME.q[k].kind == TOUCH -> renewed(k)
  :: else -> WIT(6, true); landed(k)
  fi }
/* a GET of file x would change what I know */
#define NEWS(x) ( \
  (ME.hold && ((x > ME.e && f[x].ver != 0) || (x == ME.e && f[x].ver != ME.ver))) || \
  (!ME.hold && !(ME.seen && ME.oe == x && ME.ov == f[x].ver) && (f[x].ver != 0 || x == 0 || (ME.seen && ME.oe == x))) )
/* GET of file h */
inline get() {
  if
  :: h != 0 && f[h].ver == 0 -> if :: ME.hold -> drop() :: else -> forget() fi
  :: MINE(0) -> own(0)
  :: MINE(1) -> own(1)
  :: else ->
     if :: ME.hold -> drop() :: else fi;
     ME.seen = 1; ME.oe = h; ME.ov = f[h].ver;
     if :: OVER(h) || MYDEAD(0) || MYDEAD(1) -> ME.wt = 0 :: else -> ME.wt = PATIENCE fi;
#ifdef NAMED
     ME.onext = f[h].next
#endif
  fi }
/* write kd of file en, on version xv; nv is the version that it makes */
inline send() {
  if
  :: ME.q[0].kind == 0 -> k = 0
  :: ME.q[0].kind != 0 && ME.q[1].kind == 0 -> k = 1
  :: ME.q[0].kind != 0 && ME.q[1].kind != 0 && !ME.q[0].used -> k = 0
  :: else -> k = 1
  fi;
  clr(_pid, k);
  ME.q[k].used = 1; ME.q[k].kind = kd; ME.q[k].e = en; ME.q[k].expv = xv; ME.q[k].nver = OVERV;
  if
  :: kd == CREATE || kd == TOUCH -> ME.q[k].nver = NEWV; ME.q[k].mem = 1; ME.q[k].rem = LIVE;
#ifdef ABA                 /* mutant: renewals with the same bytes, so the same version */
       if :: kd == TOUCH -> ME.q[k].nver = ME.ver :: else fi
#endif
  :: else
  fi;
  sent++; ME.cur = k + 1; kd = 0; en = 0; xv = 0 }

active [N] proctype P() {
  byte j, k, h, kd, en, xv;
  do
  :: atomic {
     if
     /* ---------------- read ------------------------------------------ */
#ifdef VIEW                /* looks as C needs them: LIST and GET apart */
     :: IDLE && ME.lst == 0 -> ME.lst = hi + 1; ME.lstv = f[hi].ver
     :: IDLE && ME.lst != 0 ->
          h = ME.lst - 1;
          if :: NEWS(h) -> get() :: else fi;
#ifndef LOOSE              /* mutant: LIST's version and GET's need not agree */
          if :: f[h].ver == ME.lstv || f[h].touched -> skip :: else -> forget() fi;
#endif
          ME.lst = 0; ME.lstv = 0
     :: IDLE && !ME.hold && ME.seen && ME.oe != 0 ->
          h = ME.oe;
          if
          :: f[h].ver == ME.ov ->
#ifdef FOLLOWOVER          /* mutant: unchanged is taken as proof of a file that is over, too */
               assert(h == hi)
#else
               assert(ME.ov == OVERV || h == hi)                           /* C */
#endif
#ifdef ANYCHANGE           /* mutant: any held version is taken for a renewal */
          :: f[h].ver != ME.ov && f[h].ver != 0 && !OVER(h) -> get()
#else
          :: f[h].ver != ME.ov && f[h].touched -> get()
#endif
          :: else -> forget()
          fi
#elif defined(GETSEND)
     :: IDLE && !ME.asked -> ME.asked = 1
     :: IDLE && ME.asked -> ME.asked = 0; h = hi; if :: NEWS(h) -> get() :: else fi; ME.waited = 0
#else
     :: IDLE && NEWS(hi) -> h = hi; get()
     :: IDLE && ME.seen && NEWS(ME.oe) -> h = ME.oe; get()
     :: IDLE && ME.hold && NEWS(ME.e) -> h = ME.e; get()
     :: IDLE && ME.q[0].mem != 0 && NEWS(ME.q[0].e) -> h = ME.q[0].e; get()
     :: IDLE && ME.q[1].mem != 0 && NEWS(ME.q[1].e) -> h = ME.q[1].e; get()
#endif
     /* ---------------- LIST after a create that landed --------------- */
     :: ME.chk == 1 || ME.chk == 2 ->
          k = ME.chk - 1;
          if
          :: hi == ME.q[k].e -> ME.chk = k + 3
          :: else -> WIT(4, first[ME.q[k].e] != ME.q[k].nver); ME.chk = 0; drop(); forget()
          fi
     :: ME.chk == 3 || ME.chk == 4 -> k = ME.chk - 3; ME.chk = 0; count(k)
#ifdef LISTFIRST           /* mutant: LIST shows the number, then GET shows my write */
     :: IDLE && !ME.hold && hi != 0 -> ME.chk = 5 + hi
     :: ME.chk >= 5 && ME.cur == 0 ->
          h = ME.chk - 5; ME.chk = 0;
          if
          :: MINE(0) && ME.q[0].kind == CREATE -> count(0)
          :: MINE(1) && ME.q[1].kind == CREATE -> count(1)
          :: else
          fi
#endif
     /* ---------------- claim, take over ------------------------------ */
     :: CANSEND && !ME.hold && ME.seen && CLAIMABLE && ME.oe < MAXE -> kd = CREATE; en = ME.oe + 1
     :: CANSEND && !ME.hold && ME.seen && !CLAIMABLE && PATIENT && MARKFIRST -> kd = MARK; en = ME.oe; xv = ME.ov
     :: CANSEND && !ME.hold && ME.seen && !CLAIMABLE && PATIENT && !MARKFIRST && ME.oe < MAXE -> kd = CREATE; en = ME.oe + 1
     /* ---------------- renew ----------------------------------------- */
     :: CANSEND && ME.hold && TOUCHES(_pid) && RUNS && f[ME.e].ver != 0 -> kd = TOUCH; en = ME.e;
#ifdef REREAD              /* mutant: on whatever version is there now */
          xv = f[ME.e].ver
#else
          xv = ME.ver
#endif
     :: CANSEND && ME.hold && !TOUCHES(_pid) && ME.e < MAXE -> kd = CREATE; en = ME.e + 1
     /* ---------------- release --------------------------------------- */
     :: CANSEND && ME.hold && (TOUCHES(_pid) || ME.e < MAXE) ->
          forget();
          if :: TOUCHES(_pid) -> kd = RELEASE; en = ME.e; xv = ME.ver :: else -> kd = FREE; en = ME.e + 1 fi;
#ifndef NOFORGET           /* mutant: an earlier write is adopted again */
#ifndef NODROP
          ME.seen = 1; ME.oe = ME.e; ME.ov = ME.ver; ME.onext = !TOUCHES(_pid);
#endif
          ME.q[0].rem = 0; if :: ME.q[0].mem != 0 -> ME.q[0].mem = 2 :: else fi;
          ME.q[1].rem = 0; if :: ME.q[1].mem != 0 -> ME.q[1].mem = 2 :: else fi;
#endif
#ifndef NODROP             /* mutant: the lease is used until the release is answered */
          unlease()
#endif
     /* ---------------- the lease has ended --------------------------- */
     :: IDLE && ME.hold && ME.rem == 0 -> drop()
     /* ---------------- answers --------------------------------------- */
     :: ME.cur != 0 && ME.resp == 1 ->
          k = ME.cur - 1; ME.cur = 0; ME.resp = 0;
          if
          :: ME.q[k].kind == CREATE -> if :: ME.q[k].mem == 1 -> landed(k) :: else fi
          :: ME.q[k].kind == TOUCH -> if :: ME.hold && ME.e == ME.q[k].e -> renewed(k) :: else fi
          :: ME.q[k].kind == MARK -> if :: ME.seen && ME.oe == ME.q[k].e -> ME.ov = OVERV; ME.wt = 0 :: else fi
          :: else -> unlease(); forget(); ME.seen = 1; ME.oe = ME.q[k].e; ME.ov = OVERV
          fi
     :: ME.cur != 0 && ME.resp == 2 -> ME.cur = 0; ME.resp = 0; if :: !ME.hold -> forget() :: else fi
     :: ME.cur != 0 && ME.resp == 0 -> k = ME.cur - 1; ME.cur = 0;
#ifdef MARKHOPE            /* mutant: a mark without an answer is taken as done */
          if :: ME.q[k].kind == MARK && ME.seen -> ME.ov = OVERV; ME.wt = 0 :: else fi
#endif
     /* ---------------- crash, start again as a new incarnation ------- */
     :: crashes > 0 && (ME.hold || ME.cur != 0 || ME.chk != 0) ->
          crashes--; ME.chk = 0; ME.cur = 0; ME.resp = 0; forget(); unmem();
#ifdef READOPT             /* mutant: the file names me, so I hold it */
          if :: ME.hold && f[ME.e].ver != 0 && !OVER(ME.e) -> ME.ver = f[ME.e].ver; ME.rem = LIVE; check() :: else -> unlease() fi
#else
          unlease()
#endif
     fi;
     if :: kd != 0 -> send() :: else fi;
     h = 0; k = 0; tidy(j, k) }
  od }

/* ---------------- store, network, collection ---------------------------- */
#if defined(MARKUNCOND)
#define ANY(k) (k == MARK)
#elif defined(TOUCHUNCOND)
#define ANY(k) (k == TOUCH)
#elif defined(RELUNCOND)
#define ANY(k) (k == RELEASE)
#elif defined(CREATEUNCOND)
#define ANY(k) (k == CREATE || k == FREE)
#else
#define ANY(k) false
#endif
#define R n[i].q[s]
#define ABSENT (R.kind == CREATE || R.kind == FREE)
#define MATCH (ANY(R.kind) || (ABSENT && f[R.e].ver == 0) || (!ABSENT && f[R.e].ver == R.expv))
#ifdef GCREQ               /* mutant: kept no longer than its creates are under way */
#define UNDERWAY(x, y, m) (n[x].q[y].used && n[x].q[y].e == m)
#define KEPT(m) (UNDERWAY(0, 0, m) || UNDERWAY(0, 1, m) || UNDERWAY(1, 0, m) || UNDERWAY(1, 1, m))
#else
#define KEPT(m) false
#endif
#ifdef GCTOP               /* mutant: the highest is collected as well */
#define OLD(m) (m <= hi && f[m].ver != 0 && !KEPT(m))
#else
#define OLD(m) (m < hi && f[m].ver != 0 && !KEPT(m))
#endif

active proctype Net() {
  byte i, s, m;
  do
  :: atomic {
     if
     :: n[0].q[0].used -> i = 0; s = 0
     :: n[0].q[1].used -> i = 0; s = 1
     :: n[1].q[0].used -> i = 1; s = 0
     :: n[1].q[1].used -> i = 1; s = 1
#if N > 2
     :: n[2].q[0].used -> i = 2; s = 0
     :: n[2].q[1].used -> i = 2; s = 1
#endif
     fi;
     R.used = 0;
     if
     :: skip                                                               /* dropped */
     :: MATCH ->
          if
          :: R.kind == CREATE && R.e > hi -> first[R.e] = R.nver
          :: else -> WIT(5, R.kind == CREATE && R.e < hi && n[i].hold && n[i].e == R.e && n[i].ver == R.nver)
          fi;
          if :: R.e > hi -> hi = R.e :: else fi;
          f[R.e].ver = R.nver;
#ifdef NAMED
          f[R.e].next = !TOUCHES(i);
#endif
#ifdef VIEW
          f[R.e].touched = (R.kind == TOUCH);
#endif
#if WITNESS == 1 || WITNESS == 3
          if :: R.kind == MARK -> last = 10 + i :: R.kind == RELEASE || R.kind == FREE -> last = 20 + i :: else fi;
#endif
          if :: n[i].cur == s + 1 && n[i].resp == 0 -> n[i].resp = 1 :: skip fi;
          if :: dups > 0 -> dups--; R.used = 1 :: skip fi                  /* and once more, some time */
     :: !MATCH -> if :: n[i].cur == s + 1 && n[i].resp == 0 -> n[i].resp = 2 :: skip fi
     fi; tidy(i, s) }
#if defined(GCOLD) || defined(GCREQ) || defined(GCTOP)
  :: atomic {
     if
     :: OLD(1) -> m = 1
     :: OLD(2) -> m = 2
     :: OLD(3) -> m = 3
     :: OLD(4) -> m = 4
     fi;
     EMPTIED(m); m = 0;
     do :: hi > 0 && f[hi].ver == 0 -> hi-- :: else -> break od;
     tidy(i, s) }
#endif
  od }

#define DEC(v) v = ((v > 0) -> v - 1 : 0)
active proctype Clock() {
  byte i; bit d;
  do
  :: atomic {
      i = 0;
      do
      :: i < N ->
         d = 1;
#ifdef SUSPEND             /* mutant: the holder's clock stops in suspend */
         if :: d = 0 :: skip fi;
#endif
         if :: d -> DEC(n[i].rem); DEC(n[i].q[0].rem); DEC(n[i].q[1].rem) :: else fi;
         DEC(n[i].wt);
#ifdef GETSEND
         if :: n[i].asked && n[i].waited < WAIT -> n[i].waited++ :: else fi;
#endif
         i++
      :: else -> break
      od; i = 0; d = 0 }
  od }
