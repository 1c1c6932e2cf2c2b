/* A lock moves from one object to another, in another store. Some processes use the old object, one uses the new
 * one, and MOVERS run the same move: each may be killed at any point, and run again without knowing anything.
 * What lease.pml proves of a lease is taken for granted: while one may be valid, or may become so by an
 * answer to come, nobody else takes it over. A write lands once, at any time or never, if its condition
 * holds; its answer comes late or never, and whoever has none reads.
 * Properties
 *   V  at most one process may use the lock at any instant, whichever object it uses
 *   T  tokens grow, from the old object to the new one
 */
#ifndef MAXV
#define MAXV 5
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef MOVERS
#define MOVERS 1
#endif
#ifndef USERS
#define USERS 1                 /* of the old object */
#endif
#define N (USERS + 1 + MOVERS)  /* the users of OLD, that of NEW, the movers */
#define OLD 0
#define NEW 1

#define ABSENT 0
#define FREE   1
#define HELD   2
#define SEALED 3                /* the old object: the lock has moved, and it stays so */
#define CLOSED 4                /* the new object: the lock is to come */

typedef Obj { byte ver; byte kind; byte tok; byte by };
typedef Proc {
  bit valid; byte tok; byte ver;                                           /* its lease */
  bit q; bit landed; bit live; byte qo; byte qe; byte qv; byte qk; byte qt; /* its request */
  bit seen; byte sv; byte sk; byte st; byte sb;                             /* what it has last seen of its object */
  bit nseen; byte nv; byte nk                                               /* of NEW, for a mover */
};
Obj o[2];
Proc p[N];
byte nextv = 10, sent, crashes = CRASHES, top;
bit started;

#define ME p[_pid]
#define MOVER (_pid > USERS)
#define MINE (_pid == USERS -> NEW : OLD)
/* A move is four writes, and its users make others. */
#define CANSEND (!ME.q && sent < MAXV + 1)
#define GONE(x) (!p[x].valid && !p[x].live)
#define TAKEABLE (ME.seen && (ME.sk == FREE || (ME.sk == HELD && ME.sb != _pid && GONE(ME.sb)) || (ME.sk == HELD && ME.sb == _pid && GONE(_pid))))

inline send(i, e, k, t, l) {
  ME.q = 1; ME.landed = 0; ME.live = l; ME.qo = i; ME.qe = e; ME.qv = nextv; ME.qk = k; ME.qt = t; nextv++; sent++ }
inline clear() { ME.q = 0; ME.landed = 0; ME.live = 0; ME.qo = 0; ME.qe = 0; ME.qv = 0; ME.qk = 0; ME.qt = 0 }
inline drop() { ME.valid = 0; ME.tok = 0; ME.ver = 0 }
inline forget() { ME.seen = 0; ME.sv = 0; ME.sk = 0; ME.st = 0; ME.sb = 0; ME.nseen = 0; ME.nv = 0; ME.nk = 0 }
inline see() { ME.seen = 1; ME.sv = o[MINE].ver; ME.sk = o[MINE].kind; ME.st = o[MINE].tok; ME.sb = o[MINE].by }
/* A write that made a lease is known to have landed, while what it says is still so. */
inline got() {
#ifdef WITNESS
  assert(!(ME.qo == NEW));
#endif
  ME.valid = 1; ME.tok = ME.qt; ME.ver = ME.qv; clear(); forget();
  j = 0;
  do
  :: j < N -> assert(j == _pid || !p[j].valid); j++                                       /* V */
  :: else -> break
  od;
  j = 0 }

active [N] proctype P() {
  byte j;
  atomic { !started -> o[OLD].ver = 1; o[OLD].kind = FREE; o[OLD].tok = 4; top = 4; started = 1 } unless { started };
  do
  /* ---- the network ------------------------------------------------------ */
  :: atomic { ME.q && !ME.landed ->
       if
#ifdef UNCOND    /* mutant: the old object is sealed whatever it says by then */
       :: o[ME.qo].ver == ME.qe || ME.qk == SEALED ->
#else
       :: o[ME.qo].ver == ME.qe ->
#endif
            if
            :: ME.qk == HELD -> assert(ME.qt > top); top = ME.qt                              /* T */
            :: else
            fi;
            o[ME.qo].ver = ME.qv; o[ME.qo].kind = ME.qk; o[ME.qo].tok = ME.qt; o[ME.qo].by = _pid;
            ME.landed = 1
       :: else -> clear()        /* it can land no more: whoever asks reads the object */
       fi }
  :: atomic { ME.q && ME.landed && ME.live && ME.qk == HELD && o[ME.qo].ver == ME.qv -> got() }
  /* its answer does not come, or too late: what it made is read */
  :: atomic { ME.q && ME.landed -> clear() }
  /* ---- time ------------------------------------------------------------- */
  :: atomic { ME.valid -> drop(); forget() }                /* released, or run out */
  :: atomic { ME.q && ME.live -> ME.live = 0 }              /* too late to make a lease */
  :: atomic { MOVER && crashes > 0 -> crashes--; drop(); forget(); ME.live = 0 }   /* its request may yet land */
  /* ---- looks ------------------------------------------------------------ */
  :: atomic { !ME.q && !ME.valid -> see() }
  :: atomic { !ME.q && MOVER -> ME.nseen = 1; ME.nv = o[NEW].ver; ME.nk = o[NEW].kind }
  /* ---- whoever uses the lock -------------------------------------------- */
#ifdef REOPENS   /* mutant: an object that is not understood is taken over */
  :: atomic { !MOVER && CANSEND && !ME.valid && ME.seen && (ME.sk == SEALED || ME.sk == CLOSED) -> send(MINE, ME.sv, HELD, ME.st + 1, 1) }
#endif
  :: atomic { !MOVER && CANSEND && !ME.valid && TAKEABLE -> send(MINE, ME.sv, HELD, ME.st + 1, 1) }
#ifdef DELETED   /* mutant: the sealed object is deleted, and made anew by whoever used it */
  :: atomic { o[OLD].kind == SEALED -> o[OLD].ver = 0; o[OLD].kind = ABSENT; o[OLD].tok = 0; o[OLD].by = 0 }
  :: atomic { _pid < USERS && CANSEND && !ME.valid && ME.seen && ME.sk == ABSENT -> send(OLD, 0, HELD, top + 1, 1) }
#endif
#ifdef EARLY     /* mutant: nothing keeps the new object closed, so its users begin before it is opened */
  :: atomic { _pid == USERS && CANSEND && !ME.valid && ME.seen && ME.sk == ABSENT -> send(NEW, 0, HELD, 1, 1) }
#endif
  /* ---- a mover: M1 closes the new object, M2 holds the old one, M3 seals it, M4 opens the new one -------- */
#ifndef EARLY
  :: atomic { MOVER && CANSEND && ME.nseen && ME.nk == ABSENT -> send(NEW, 0, CLOSED, 0, 0) }
#endif
  :: atomic { MOVER && CANSEND && !ME.valid && TAKEABLE && ME.nseen && ME.nk == CLOSED -> send(OLD, ME.sv, HELD, ME.st + 1, 1) }
  :: atomic { MOVER && CANSEND && ME.valid && ME.ver != 0 -> j = ME.tok; send(OLD, ME.ver, SEALED, j, 0); j = 0; drop() }
#ifdef HOPE      /* mutant: opened once the seal was sent */
  :: atomic { MOVER && ME.q && ME.qk == SEALED && ME.nseen && ME.nk == CLOSED && sent < MAXV + 1 && !ME.landed ->
       j = ME.qt; clear(); send(NEW, ME.nv, FREE, j, 0); j = 0 }      /* and the seal never lands */
#endif
#ifdef LOWTOKEN  /* mutant: opened with tokens of its own */
  :: atomic { MOVER && CANSEND && ME.seen && ME.sk == SEALED && ME.nseen && ME.nk == CLOSED -> send(NEW, ME.nv, FREE, 0, 0) }
#else
  :: atomic { MOVER && CANSEND && ME.seen && ME.sk == SEALED && ME.nseen && ME.nk == CLOSED -> send(NEW, ME.nv, FREE, ME.st, 0) }
#endif
  od
}
