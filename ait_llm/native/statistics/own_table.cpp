#include "own_table.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ait {
namespace {

// One thread; it takes one job at a time.
struct Worker {
    sem_t begin;
    sem_t done;
    void (*job)(void *) = nullptr;
    void *context = nullptr;
    bool works = false; // has a table of its own
    Worker *next = nullptr;
};

// Workers that wait for a job; there are as many as ever wrote at once. None is freed: a program may end
// while one of them writes.
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
Worker *g_idle = nullptr;
bool g_refused = false;

// Closes what the kernel copied into a table that was made without close_range.
bool CloseAll()
{
    DIR *folder = opendir("/proc/thread-self/fd");
    if (folder == nullptr) {
        return false;
    }
    while (const dirent *each = readdir(folder)) {
        const int file = atoi(each->d_name);
        if (each->d_name[0] != '.' && file != dirfd(folder)) {
            close(file);
        }
    }
    closedir(folder);
    return true;
}

// An empty table. A copy that keeps the program's pipes open would let their readers wait for ever.
bool LeaveTable()
{
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
    constexpr unsigned UNSHARE = 2; // CLOSE_RANGE_UNSHARE
    if (syscall(SYS_close_range, 0U, ~0U, UNSHARE) == 0) {
        return true;
    }
    // Before Linux 5.9, or not allowed in a container.
    return unshare(CLONE_FILES) == 0 && CloseAll();
}

void *Work(void *argument)
{
    auto *self = static_cast<Worker *>(argument);
    self->works = LeaveTable();
    if (self->works) {
        // What the runtime may write to numbers 0 to 2 must not end in a file of ours.
        while (true) {
            const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
            if (file > 2) {
                close(file);
            }
            if (file < 0 || file >= 2) {
                break;
            }
        }
    }
    sem_post(&self->done);
    while (self->works) {
        while (sem_wait(&self->begin) != 0) {
        }
        self->job(self->context);
        sem_post(&self->done);
    }
    return nullptr;
}

void WaitDone(Worker *worker)
{
    while (sem_wait(&worker->done) != 0) {
    }
}

// The threads of the parent are not in a child.
void BeforeFork()
{
    pthread_mutex_lock(&g_lock);
}

void InParent()
{
    pthread_mutex_unlock(&g_lock);
}

void InChild()
{
    g_idle = nullptr;
    pthread_mutex_unlock(&g_lock);
}

Worker *Start()
{
    static const int g_watched = pthread_atfork(BeforeFork, InParent, InChild);
    if (g_watched != 0) {
        return nullptr;
    }
    auto *worker = new Worker;
    sem_init(&worker->begin, 0, 0);
    sem_init(&worker->done, 0, 0);
    sigset_t all;
    sigset_t before;
    sigfillset(&all); // signals of the program are for its own threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const bool started = pthread_create(&thread, nullptr, Work, worker) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started) {
        delete worker;
        return nullptr;
    }
    pthread_setname_np(thread, "ait-files");
    pthread_detach(thread);
    WaitDone(worker);
    return worker;
}

Worker *Take()
{
    pthread_mutex_lock(&g_lock);
    Worker *worker = g_idle;
    if (worker != nullptr) {
        g_idle = worker->next;
    }
    const bool refused = g_refused;
    pthread_mutex_unlock(&g_lock);
    if (worker != nullptr || refused) {
        return worker;
    }
    worker = Start();
    if (worker != nullptr && !worker->works) {
        pthread_mutex_lock(&g_lock);
        g_refused = true;
        pthread_mutex_unlock(&g_lock);
        return nullptr;
    }
    return worker;
}

} // namespace

bool RunInOwnTable(void (*job)(void *), void *context)
{
    Worker *worker = Take();
    if (worker == nullptr) {
        return false;
    }
    worker->job = job;
    worker->context = context;
    sem_post(&worker->begin);
    WaitDone(worker);
    pthread_mutex_lock(&g_lock);
    worker->next = g_idle;
    g_idle = worker;
    pthread_mutex_unlock(&g_lock);
    return true;
}

} // namespace ait
