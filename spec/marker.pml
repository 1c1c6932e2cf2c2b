/* Layout "marker": one object that is there or not.
 *
 *   acquire    create it, if absent
 *   renew      overwrite it, if its version is the one last known
 *   take over  unchanged for TTL + m: overwrite it, if its version is exactly
 *              the one watched
 *   release    DELETE, without condition: no store can be relied on for one
 *   answer     of a write missing or a refusal: a GET decides, by the version
 *   validity   from before the sending of the write that is counted, for TTL
 *
 * A DELETE removes whatever is there when it arrives, so the release is safe
 * under these assumptions only; each has its mutation:
 *   1  it takes effect within D of its sending, or never.  D bounds the network,
 *      the store, and every pause between the look at the clock and the sending
 *   2  it is sent only while at least D of the lease is left, so that nobody can
 *      have taken over when it arrives
 *   3  it takes effect once: sent once a lease, answered or not, and repeated by
 *      nothing on its way.  After the first arrival others create at once, and a
 *      second removes their marker however early it comes
 *   4  the lease is not used any more when it is sent, and writes that were sent
 *      before are not recognised after
 *   5  the releaser's own marker, when it is still there, gets the patience that
 *      anybody's gets: taken over at once, it may still be removed
 * Under 1 to 5 at most one lease is valid, with writes delayed without bound,
 * dropped and duplicated, answers lost, crashes, pauses between all other steps.
 *
 * A sweeper (-DSWEEP) looks, finds the marker older than TTL + m by the store's
 * clock, and sends a DELETE that takes effect within D of the look, or never.
 * That is not safe beside candidates who take over, whatever D is: the marker
 * that it finds may be another one when the DELETE arrives.  It is safe if nobody
 * takes over (-DNOTAKE), nobody renews a lease that has ended, there is one
 * sweeper, and each DELETE's D has passed before its next look.  A sweeper that
 * takes the marker over on the version looked at, and then releases as any
 * holder does, is safe beside everybody (-DFAST).
 *
 * Tokens: none.  Nothing here protects against a holder's late work.
 *
 * Time: ticks; a holder's timer runs DL ticks late, a follower's DF ticks early.
 * Property
 *   V   at most one valid lease at any instant                      check()
 */
#ifndef N
#define N 2                /* at most 3: see Net */
#endif
#ifndef TTL
#define TTL 3
#endif
#ifndef D
#define D 2
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

#define CREATE 1    /* if absent */
#define RENEW  2    /* if its version is expv */
#define TAKE   3    /* the same of somebody else's */
#define REMOVE 4    /* DELETE */

#define NEWV (8*N + 2)     /* the version of a new write, until tidy() numbers it */

typedef Req { bit used; bit mem; byte kind; byte expv; byte nver; byte rem; byte left };
                           /* left: ticks in which a DELETE can still arrive */
typedef Node {
  bit hold; byte ver; byte rem;
  bit seen; byte ov; byte wt;
  byte cur; byte resp;     /* slot+1 waited for; 1 done, 2 refused */
#ifdef RETRYDEL
  byte due;
#endif
#ifdef GETSEND
  bit asked; byte waited;
#endif
  Req q[2] };
Node n[N];
byte ver, age;             /* the marker; 0: absent.  Its age in ticks */
byte sent, dups = DUPS, crashes = CRASHES;
hidden byte as[NEWV+1];    /* scratch of tidy() */
#ifdef READOPT
byte holder;
#endif
#ifdef SWEEP
typedef Sweeper { bit used; byte left };
#ifdef SWEEP2
#define SWEEPERS 2
#else
#define SWEEPERS 1
#endif
Sweeper w[SWEEPERS];
#endif

#define ME n[_pid]
#define LIVE (TTL - ML + DL)
#define WAIT (TTL + MF - DF)
#if defined(SWEEP) || defined(FAST)
#ifndef OLDAGE
#define OLDAGE WAIT
#endif
#define AGED (age >= OLDAGE)
#define AGING (age < OLDAGE)
#else
#define AGED false
#define AGING false
#endif
#define VALID(x) (n[x].hold && n[x].rem > 0)
#define IDLE (ME.cur == 0)
#define CANSEND (IDLE && sent < MAXV && (!ME.q[0].used || !ME.q[1].used))
#ifdef NOPATIENCE          /* mutant: a marker that was seen once is taken over */
#define PATIENT true
#elif defined(FAST)        /* one answer shows its age by the store's clock */
#define PATIENT (ME.wt == 0 || (AGED && ver == ME.ov))
#else
#define PATIENT (ME.wt == 0)
#endif
#ifdef GETSEND             /* mutant: patience counts from the sending of the GET */
#define PATIENCE (WAIT > ME.waited -> WAIT - ME.waited : 0)
#else
#define PATIENCE WAIT
#endif
#ifdef NOTAKE              /* candidates leave an expired marker to the sweeper */
#define TAKES false
#else
#define TAKES true
#endif
#ifdef RELLATE             /* mutant: release with less than D left */
#define INTIME true
#else
#define INTIME (ME.rem >= D)
#endif
#ifdef LATE                /* mutant: a DELETE arrives at any time */
#define ARRIVES(x) true
#else
#define ARRIVES(x) (x > 0)
#endif
#ifdef FROMRESP            /* mutant: validity counts from the answer */
#define REMOF(k) LIVE
#else
#define REMOF(k) ME.q[k].rem
#endif
#ifdef REVIVE              /* mutant: a lease that has ended is renewed */
#define RUNS(k) true
#else
#define RUNS(k) (ME.q[k].kind == RENEW -> ME.rem > 0 : ME.q[k].rem > 0)
#endif

inline clr(x, y) { n[x].q[y].mem = 0; n[x].q[y].kind = 0; n[x].q[y].expv = 0; n[x].q[y].nver = 0; n[x].q[y].rem = 0; n[x].q[y].left = 0 }
inline forget() { ME.seen = 0; ME.ov = 0; ME.wt = 0 }
inline unmem() { ME.q[0].mem = 0; ME.q[1].mem = 0; ME.q[0].rem = 0; ME.q[1].rem = 0 }
inline unlease() { ME.hold = 0; ME.ver = 0; ME.rem = 0 }
inline drop() { unlease(); unmem() }
inline check() { d_step { j = 0; do :: j < N -> assert(!(j != _pid && VALID(j) && VALID(_pid))); j++ :: else -> break od; j = 0 } }   /* V */

#define LOST(x, y) (n[x].q[y].kind != 0 && !n[x].q[y].used && n[x].cur != y + 1 && !(n[x].q[y].mem && ver == n[x].q[y].nver))
#define RENUMBER(v) if :: v != 0 -> if :: as[v] == 0 -> b++; as[v] = b :: else fi; v = as[v] :: else fi
/* what can never matter again is cleared; versions, which are only compared, are numbered in the order of a fixed walk */
inline tidy(a, b) {
  d_step {
  a = 0;
  do
  :: a < N -> b = 0;
     do
     :: b < 2 ->
        if :: !n[a].q[b].used -> n[a].q[b].expv = 0; n[a].q[b].left = 0 :: else fi;
        if :: LOST(a, b) -> clr(a, b) :: else fi; b++
     :: else -> break
     od; a++
  :: else -> break
  od;
  b = 0; RENUMBER(ver);
  a = 0;
  do
  :: a < N -> RENUMBER(n[a].ver); RENUMBER(n[a].ov);
     RENUMBER(n[a].q[0].expv); RENUMBER(n[a].q[0].nver); RENUMBER(n[a].q[1].expv); RENUMBER(n[a].q[1].nver); a++
  :: else -> break
  od;
  a = 0; do :: a <= NEWV -> as[a] = 0; a++ :: else -> break od;
  a = 0; b = 0 } }

/* the write of slot k is known to have landed */
inline landed(k) {
  if
  :: RUNS(k) ->
       WIT(1, ME.q[k].kind == TAKE);
       WIT(2, ME.q[k].kind == RENEW);
       ME.hold = 1; ME.ver = ME.q[k].nver; ME.rem = REMOF(k);
#ifndef NOFORGET
       ME.q[k].mem = 0; ME.q[k].rem = 0;
#endif
       forget(); check()
  :: else -> drop(); forget()
  fi }
#define MINE(k) (ME.q[k].mem && ME.q[k].nver == ver && (ME.q[k].kind == RENEW -> ME.hold && ME.ver != ver : !ME.hold))
#define NEWS ((ME.hold && ver != ME.ver) || (!ME.hold && !(ME.seen && ME.ov == ver)))
inline get() {
  if
  :: MINE(0) -> landed(0)
  :: MINE(1) -> landed(1)
  :: else ->
     if :: ME.hold -> drop() :: else fi;
     ME.seen = 1; ME.ov = ver;
     if :: ver == 0 -> ME.wt = 0 :: else -> ME.wt = PATIENCE fi
  fi }
/* write kd, on version xv */
inline send() {
  if
  :: ME.q[0].kind == 0 -> k = 0
  :: ME.q[0].kind != 0 && ME.q[1].kind == 0 -> k = 1
  :: ME.q[0].kind != 0 && ME.q[1].kind != 0 && !ME.q[0].used -> k = 0
  :: else -> k = 1
  fi;
  clr(_pid, k);
  ME.q[k].used = 1; ME.q[k].kind = kd; ME.q[k].expv = xv;
  if
  :: kd == REMOVE -> ME.q[k].left = D
  :: else -> ME.q[k].nver = NEWV; ME.q[k].mem = 1; ME.q[k].rem = LIVE;
#ifdef ABA                 /* mutant: renewals with the same bytes, so the same version */
       if :: kd == RENEW -> ME.q[k].nver = ME.ver :: else fi
#endif
  fi;
  sent++; ME.cur = k + 1; kd = 0; xv = 0 }

active [N] proctype P() {
  byte j, k, kd, xv;
  do
  :: atomic {
     if
     /* ---------------- read ------------------------------------------ */
#ifdef GETSEND
     :: IDLE && !ME.asked -> ME.asked = 1
     :: IDLE && ME.asked -> ME.asked = 0; if :: NEWS -> get() :: else fi; ME.waited = 0
#else
     :: IDLE && NEWS -> get()
#endif
     /* ---------------- acquire, take over, renew --------------------- */
     :: CANSEND && !ME.hold && ME.seen && ME.ov == 0 -> kd = CREATE
     :: CANSEND && !ME.hold && ME.seen && ME.ov != 0 && PATIENT && TAKES -> kd = TAKE; xv = ME.ov
#ifdef REVIVE
     :: CANSEND && ME.hold -> kd = RENEW; xv = ME.ver
#else
     :: CANSEND && ME.hold && ME.rem > 0 -> kd = RENEW; xv = ME.ver
#endif
     /* ---------------- release --------------------------------------- */
     :: CANSEND && ME.hold && INTIME ->
          kd = REMOVE; forget();
#ifdef RETRYDEL
          ME.due = ME.rem;
#endif
#ifdef OWNDEAD             /* mutant: one's own marker, released, is taken over at once */
          ME.seen = 1; ME.ov = ME.ver;
#endif
#ifndef NOFORGET           /* mutant: an earlier write is adopted again */
          unmem();
#endif
#ifndef NODROP             /* mutant: the lease is used until the release is answered */
          unlease()
#endif
#ifdef RETRYDEL            /* mutant: a release without an answer is sent again, in time */
     :: CANSEND && !ME.hold && ME.due >= D -> kd = REMOVE
#endif
     /* ---------------- the lease has ended --------------------------- */
     :: IDLE && ME.hold && ME.rem == 0 -> drop()
     /* ---------------- answers --------------------------------------- */
     :: ME.cur != 0 && ME.resp == 1 ->
          k = ME.cur - 1; ME.cur = 0; ME.resp = 0;
          if
          :: ME.q[k].kind == REMOVE -> unlease(); forget()
          :: ME.q[k].kind == RENEW -> if :: ME.hold -> landed(k) :: else fi
          :: else -> landed(k)
          fi
     :: ME.cur != 0 && ME.resp == 2 -> ME.cur = 0; ME.resp = 0; if :: !ME.hold -> forget() :: else fi
     :: ME.cur != 0 && ME.resp == 0 -> ME.cur = 0
     /* ---------------- crash, start again ---------------------------- */
     :: crashes > 0 && (ME.hold || ME.cur != 0) ->
          crashes--; ME.cur = 0; ME.resp = 0; drop(); forget();
#ifdef READOPT             /* mutant: the marker names me, so I hold it */
          if :: ver != 0 && holder == _pid + 1 -> ME.hold = 1; ME.ver = ver; ME.rem = LIVE; check() :: else fi
#endif
     fi;
     if :: kd != 0 -> send() :: else fi;
     k = 0; tidy(j, k) }
  od }

/* ---------------- store, network, sweeper -------------------------------- */
#if defined(RENEWUNCOND)
#define ANY(k) (k == RENEW)
#elif defined(TAKEUNCOND)
#define ANY(k) (k == TAKE)
#elif defined(CREATEUNCOND)
#define ANY(k) (k == CREATE)
#else
#define ANY(k) false
#endif
#define R n[i].q[s]
#define DONE (R.kind == REMOVE -> ARRIVES(R.left) : ver == R.expv || ANY(R.kind))
#ifdef DUPDEL              /* mutant: a DELETE is delivered twice, in time */
#define TWICE true
#else
#define TWICE (R.kind != REMOVE)
#endif

active proctype Net() {
  byte i, s;
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
     :: DONE ->
          WIT(3, R.kind == REMOVE && ver != 0);
          ver = (R.kind == REMOVE -> 0 : R.nver); age = 0;
#ifdef READOPT
          holder = i + 1;
#endif
          if :: n[i].cur == s + 1 && n[i].resp == 0 -> n[i].resp = 1 :: skip fi;
          if :: dups > 0 && TWICE -> dups--; R.used = 1 :: skip fi         /* and once more, some time */
     :: !DONE && R.kind != REMOVE -> if :: n[i].cur == s + 1 && n[i].resp == 0 -> n[i].resp = 2 :: skip fi
     fi; tidy(i, s) }
#ifdef SWEEP
  :: atomic { !w[0].used && w[0].left == 0 && ver != 0 && AGED -> w[0].used = 1; w[0].left = D }
  :: atomic { w[0].used -> w[0].used = 0; if :: skip :: ARRIVES(w[0].left) -> WIT(4, ver != 0); ver = 0; age = 0 fi; tidy(i, s) }
#ifdef SWEEP2
  :: atomic { !w[1].used && w[1].left == 0 && ver != 0 && AGED -> w[1].used = 1; w[1].left = D }
  :: atomic { w[1].used -> w[1].used = 0; if :: skip :: ARRIVES(w[1].left) -> ver = 0; age = 0 fi; tidy(i, s) }
#endif
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
         DEC(n[i].wt); DEC(n[i].q[0].left); DEC(n[i].q[1].left);
#ifdef RETRYDEL
         DEC(n[i].due);
#endif
#ifdef GETSEND
         if :: n[i].asked && n[i].waited < WAIT -> n[i].waited++ :: else fi;
#endif
         i++
      :: else -> break
      od; i = 0; d = 0;
#ifdef SWEEP
      DEC(w[0].left);
#ifdef SWEEP2
      DEC(w[1].left);
#endif
#endif
      if :: ver != 0 && AGING -> age++ :: else fi }
  od }
